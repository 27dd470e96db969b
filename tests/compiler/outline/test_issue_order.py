"""In which order steps are issued: what is waited for first, everything else as it was."""

from magus.compiler.ir import Direction, IndexRange, Reduction, Region, TileGroup, Transfer
from magus.compiler.outline.steps import Move, after_kernels, before_kernels

WHOLE = Region(0, IndexRange(0, 8), IndexRange(0, 8))


def kernel(name: str, *after: str) -> TileGroup:
    return TileGroup(name, (WHOLE,), IndexRange(0, 8), after)


def put(name: str, *after: str) -> Transfer:
    return Transfer(name, Direction.PUT, WHOLE, 1, f"s_{name}", after)


def total(name: str, *after: str) -> Reduction:
    return Reduction(name, WHOLE, 2, after)


def test_kernels_come_behind_what_brings_their_data() -> None:
    groups = [kernel("own"), kernel("g0", "s_x0", "s_x1"), kernel("g1", "s_x2")]

    steps = before_kernels(groups, [put("x0"), put("x1"), put("x2"), put("x3")])

    assert [step.name for step in steps] == ["own", "x0", "x1", "g0", "x2", "g1", "x3"]


def test_what_other_ranks_bring_holds_up_nothing() -> None:
    steps = before_kernels([kernel("g0", "s_theirs")], [put("x0")])

    assert [step.name for step in steps] == ["g0", "x0"]


MOVING: list[Move] = [
    put("x0", "g0"),
    total("r0", "own", "s_x0"),
    put("y0", "r0"),
    put("x1", "g1"),
    total("r1", "own", "g1", "s_x1"),
    put("z1", "s_theirs"),
]


def test_transfers_come_behind_what_makes_their_data() -> None:
    steps = after_kernels([kernel("g0"), kernel("own"), kernel("g1")], MOVING, sums_behind=False)

    assert [step.name for step in steps] == ["g0", "x0", "own", "r0", "y0", "g1", "x1", "r1", "z1"]


def test_sums_behind_all_kernels() -> None:
    steps = after_kernels([kernel("g0"), kernel("own"), kernel("g1")], MOVING, sums_behind=True)

    assert [step.name for step in steps] == ["g0", "x0", "own", "g1", "r0", "y0", "x1", "r1", "z1"]


def test_what_never_can_go_is_kept_for_the_check() -> None:
    steps = after_kernels([kernel("g0")], [put("x0", "r0"), total("r0", "s_x0")], sums_behind=False)

    assert [step.name for step in steps] == ["g0", "x0", "r0"]
