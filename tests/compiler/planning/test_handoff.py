"""A GEMM that is cut along the all_to_all before it: the kernels it has, and what each of them waits for."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.compiler.ir import (
    ExecutionOptions,
    HandOff,
    IndexRange,
    Kernels,
    OpCase,
    OpChoice,
    OpMode,
    OpPlan,
    PartWait,
    PeerOrder,
    Plan,
    Region,
    Schedule,
    Step,
    TileGroup,
    Wait,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.handoff import Delivered, delivered_for, following, sole_chain
from magus.compiler.planning.parts import PlanError
from magus.compiler.planning.plan import build_plan
from magus.compiler.verify.check import check_parts, check_plan
from tests.helpers.scenarios.exchange import (
    ADDED_BESIDE,
    CASES,
    CHOICES,
    DMA,
    RANKS,
    SLICED,
    along,
    as_pair,
    exchange,
    named,
)

Kernel = tuple[frozenset[tuple[int, int, int, int, int]], frozenset[str]]
"""What a kernel takes, as blocks with their rows and inner indices, and what it waits for."""


def plan_of(kind: str, choice: Schedule) -> Plan:
    scenario = exchange(kind)
    return build_plan(scenario.system, scenario.workload, choice)


def second_kernels(schedule: OpPlan) -> Iterator[Kernel]:
    """The kernels of the second GEMM of a pair of two, which count blocks as the pair does."""
    for step in schedule.steps:
        if isinstance(step, TileGroup) and step.kernel:
            taken = {(each.owner, each.rows.start, each.rows.stop, step.k.start, step.k.stop) for each in step.regions}
            yield frozenset(taken), frozenset(name for name in step.after if not name.startswith("then_"))


def kernels_along(plan: Plan, delivered: Delivered) -> Iterator[Kernel]:
    """Those of the GEMM that is an op of its own; of blocks side by side each is a slice of the inner dimension."""
    part = plan.part("y_gemm")
    for step in part.schedule.steps:
        assert isinstance(step, TileGroup)
        taken = frozenset(piece for region in step.regions for piece in _pieces(step, region.rows, delivered))
        yield taken, frozenset(wait.of for wait in part.step_waits if wait.step == step.name)


def _pieces(step: TileGroup, rows: IndexRange, delivered: Delivered) -> Iterator[tuple[int, int, int, int, int]]:
    start, stop = rows.start, rows.stop
    if not delivered.side_by_side:
        block = start // delivered.rows
        yield block, start - block * delivered.rows, stop - block * delivered.rows, step.k.start, step.k.stop
        return
    for k in step.slices:
        for block in range(k.start // delivered.cols, -(-k.stop // delivered.cols)):
            low, high = max(k.start - block * delivered.cols, 0), min(k.stop - block * delivered.cols, delivered.cols)
            yield block, start, stop, low, high


@pytest.mark.parametrize(("kind", "choice"), [case for case in CASES if case not in ADDED_BESIDE], ids=named)
def test_it_is_cut_as_the_second_kernel_of_a_pair(kind: str, choice: OpChoice) -> None:
    """The templates of A2A+GEMM say the same, and with GEMM+A2A in one plan what waits for what."""
    scenario, pair = exchange(kind), as_pair(kind)
    found = delivered_for(scenario.workload, scenario.workload.op("y_gemm"), RANKS)
    assert found is not None and found[0] == "y"
    assert found[1].side_by_side is (kind == "beside")

    mine = Counter(kernels_along(plan_of(kind, along(choice)), found[1]))

    assert mine == Counter(second_kernels(build_op_plan(pair, choice)))
    assert sum(mine.values()) > 1


@pytest.mark.parametrize(("kind", "choice"), CASES, ids=named)
def test_a_plan_is_right(kind: str, choice: OpChoice) -> None:
    """Each tile once, slices in turn, and all that is read is waited for; whole, there is one kernel."""
    scenario, plan = exchange(kind), plan_of(kind, along(choice))
    part = plan.part("y_gemm")

    assert check_parts(scenario.system, scenario.workload, plan) == ()
    assert check_plan(OpCase("y_gemm", scenario.system, part.shape), part.schedule) == ()
    assert part.waits == ()
    assert part.schedule.expression == f"chained to {plan.part('y').schedule.expression}"
    whole = plan_of(kind, Schedule("whole", (OpMode("y", choice),))).part("y_gemm")
    assert (len(whole.schedule.steps), whole.waits, whole.step_waits) == (1, (PartWait("y"),), ())


def test_what_is_cut_along_waits_by_rows_whatever_the_seams() -> None:
    choice = along(CHOICES[0])
    whole = Schedule("whole", choice.modes, chained=choice.chained, handoff=HandOff.WHOLE)

    assert plan_of("below", whole).part("y_gemm") == plan_of("below", choice).part("y_gemm")


def test_what_needs_no_transfer_comes_first() -> None:
    steps = plan_of("below", along(OpChoice("hetero_fused_1d", 8, DMA))).part("y_gemm").schedule.steps

    assert [step.name for step in steps] == ["own", "g0", "g1"]


def test_who_may_be_cut_along_whom() -> None:
    graph = exchange("below").workload

    assert {pair: [op.name for op in ops] for pair, ops in following(graph, RANKS).items()} == {"y": ["y_gemm"]}
    assert following(graph, 3) == {}, "blocks of other sizes"
    assert delivered_for(graph, graph.op("z"), RANKS) is None


@pytest.mark.parametrize("kind", ["below", "beside"])
def test_a_chain_that_alone_has_a_choice_is_one_op(kind: str) -> None:
    found, pair = sole_chain(exchange(kind)), as_pair(kind).shape

    assert found is not None and found[1] == "y_gemm"
    assert replace(found[0].shape, name=pair.name, tensors=(), made=()) == replace(pair, tensors=(), made=())
    assert set(found[0].shape.tensors) == set(pair.tensors)


def test_a_chain_of_which_others_read_the_middle_is_none() -> None:
    scenario = exchange("below")
    *ops, norm = scenario.workload.ops
    middle = replace(norm, name="m", reads=(replace(norm.reads[0], made_by="y"),))

    assert sole_chain(replace(scenario, workload=replace(scenario.workload, ops=(*ops, norm, middle)))) is None
    assert sole_chain(replace(scenario, workload=replace(scenario.workload, ops=(ops[0], norm)))) is None


PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
UNCUT = {
    "it is one kernel": ("below", OpChoice("serial", RANKS, DMA)),
    "its kernel is persistent": ("below", OpChoice("uniform_fused_1d", 8, DMA, tactics=PERSISTENT)),
    "its ranks differ": ("below", OpChoice("shard_p2p", RANKS, DMA, order=PeerOrder.ABSOLUTE)),
}


@pytest.mark.parametrize("why", UNCUT)
def test_why_nothing_is_cut_along_a_pair(why: str) -> None:
    kind, choice = UNCUT[why]
    with pytest.raises(PlanError) as caught:
        plan_of(kind, along(choice))

    assert caught.value.at == "y_gemm"
    assert caught.value.rejection.message.startswith(f"y_gemm cannot be cut along y: {why}")
    assert caught.value.rejection.hint


def test_a_separated_op_has_nothing_to_be_chained_to() -> None:
    apart = Schedule("separated", (OpMode("y", separate=OpChoice("serial", RANKS, DMA)),), chained=("y_gemm",))

    with pytest.raises(PlanError, match="cannot be cut along y: it is separated"):
        plan_of("below", apart)
    with pytest.raises(PlanError, match="z is row_wise, which is not cut as another op"):
        plan_of("below", Schedule("z", chained=("z",)))


def test_a_kernel_takes_the_same_slice_of_each_block() -> None:
    delivered = Delivered(4, 8, 6, side_by_side=True)
    made = tuple(Region(owner, IndexRange(0, 8), IndexRange(2, 4)) for owner in range(4))
    other = (Region(0, IndexRange(0, 4), IndexRange(0, 6)), Region(1, IndexRange(4, 8), IndexRange(0, 6)))

    (kernel,) = delivered.cut_as(OpPlan("", (TileGroup("g", made, IndexRange(0, 1)),), DMA, 1, 0), 10)

    assert [str(each) for each in kernel.slices] == ["2:4", "8:10", "14:16", "20:22"]
    assert kernel.inner == 8
    assert delivered.cut_as(OpPlan("", (TileGroup("g", other, IndexRange(0, 1)),), DMA, 1, 0), 10) == ()


def _names(steps: tuple[Step, ...]) -> list[str]:
    return [step.name for step in steps]


def test_slices_are_added_in_turn() -> None:
    """Columns of what is moved are slices of the inner dimension: the first stores, the others add."""
    steps = plan_of("below", along(SLICED)).part("y_gemm").schedule.steps
    kernels = [step for step in steps if isinstance(step, TileGroup)]

    assert [step.accumulate for step in kernels] == [False] + [True] * (len(kernels) - 1)
    assert all(set(step.after) == set(_names(steps[:place])) for place, step in enumerate(kernels))
