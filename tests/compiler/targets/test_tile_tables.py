"""Tables of a persistent kernel: the order of tiles, who computes them, and what they wait for."""

import pytest

from magus.compiler.targets.tile_tables import (
    ADDS,
    LEAVES,
    ROWS_TOGETHER,
    TILE,
    Copy,
    Group,
    Host,
    Tables,
    carry_out_ready,
    counts_of,
    is_set,
    tables_of,
    tiles_of,
)
from tests.helpers import paths
from tests.helpers.some import some

OWN = Group("own", ((0, 40, 0, 48),), (0, 64), (), -1)
SLICES = (
    Group("first", ((40, 80, 0, 48), (80, 120, 0, 48)), (0, 32), (2, 0), -1),
    Group("second", ((40, 80, 0, 48), (80, 120, 0, 48)), (32, 64), (1,), 3),
)
GROUPS = (OWN, *SLICES)


def tiles_by_program(tables: Tables) -> list[list[list[int]]]:
    rows = [tables.tiles[at : at + TILE] for at in range(0, len(tables.tiles), TILE)]
    return [rows[start:stop] for start, stop in zip(tables.starts, tables.starts[1:], strict=False)]


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("programs", [1, 2, 7])
def test_tiles_cover_every_region_once(block: int, programs: int) -> None:
    tables = tables_of(GROUPS, block, block, programs)
    for slice_of_k in ((0, 64), (0, 32), (32, 64)):
        found = [
            (row, col)
            for tiles in tiles_by_program(tables)
            for top, bottom, left, right, *k, _, _, _, _ in tiles
            if tuple(k) == slice_of_k
            for row in range(top, bottom)
            for col in range(left, right)
        ]
        regions = [region for group in GROUPS if group.k == slice_of_k for region in group.regions]
        wanted = [(row, col) for a, b, c, d in regions for row in range(a, b) for col in range(c, d)]
        assert sorted(found) == sorted(wanted)


def test_tiles_are_dealt_in_turn_in_the_order_of_groups() -> None:
    tiles = tiles_by_program(tables_of(GROUPS, 32, 48, 2))

    assert [[tile[0] for tile in each] for each in tiles] == [[0, 40, 80, 40, 80], [32, 72, 112, 72, 112]]


def test_rows_of_tiles_go_together_across_the_regions_of_a_group() -> None:
    """Two regions of one row of tiles each, and one of three rows, the last of them cut off."""
    regions = ((0, 10, 0, 20), (30, 40, 0, 20), (60, 85, 0, 20))

    assert [tile[0::2] for tile in tiles_of(regions, 10, 10, 2)] == [
        *((0, 0), (30, 0), (0, 10), (30, 10)),
        *((60, 0), (70, 0), (60, 10), (70, 10)),
        *((80, 0), (80, 10)),
    ]
    assert [tile[0::2] for tile in tiles_of(regions[2:], 10, 20, 1)] == [(60, 0), (70, 0), (80, 0)]


def test_rows_together_read_as_much_less_as_was_measured() -> None:
    """Rows of a and columns of b that 132 tiles at a time read, over those row by row, against the bytes of an H100."""
    lines = (paths.ROOT / "advisor/measured/rows/tile_order_h100.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines if line.startswith("H100,8192,8192,8192,bf16,128,256,")]
    measured = {int(row[7]): int(row[8]) for row in rows}

    def panels(rows_together: int) -> int:
        tiles = tiles_of(((0, 8192, 0, 8192),), 128, 256, rows_together)
        waves = [tiles[at : at + 132] for at in range(0, len(tiles), 132)]
        return sum(128 * len({tile[0] for tile in each}) + 256 * len({tile[2] for tile in each}) for each in waves)

    assert set(measured) >= {1, 8, ROWS_TOGETHER}
    for together, read in measured.items():
        assert panels(together) / panels(1) == pytest.approx(read / measured[1], rel=0.03)
    assert min(measured, key=measured.__getitem__) == ROWS_TOGETHER


@pytest.mark.parametrize("programs", [1, 3, 5])
def test_slices_of_a_tile_are_of_one_program_in_their_order(programs: int) -> None:
    for tiles in some(tiles_by_program(tables_of(GROUPS, 16, 16, programs))):
        parts: dict[tuple[int, int], list[int]] = {}
        for tile in tiles:
            parts.setdefault((tile[0], tile[2]), []).append(tile[9])
        assert all(each in ([0], [LEAVES, ADDS]) for each in some(parts.values()))


@pytest.mark.parametrize("programs", [1, 3])
def test_a_program_waits_for_each_flag_once_and_in_time(programs: int) -> None:
    tables, flags = tables_of(GROUPS, 16, 16, programs), {(0, 64): set(), (0, 32): {0, 2}, (32, 64): {1}}
    for tiles in some(tiles_by_program(tables)):
        seen: list[int] = []
        for tile in tiles:
            seen += tables.waits[tile[6] : tile[7]]
            assert set(flags[tile[4], tile[5]]) <= set(seen)
        assert len(seen) == len(set(seen))


def test_a_flag_of_a_group_counts_its_tiles() -> None:
    assert counts_of(GROUPS, 5, 32, 32) == [1, 1, 1, 8, 1]


@pytest.mark.parametrize(
    ("flag", "count", "epoch", "wanted"),
    [(0, 1, 1, False), (1, 1, 1, True), (7, 8, 1, False), (16, 8, 2, True), (-(2**31), 1, 2**31 - 1, True)],
)
def test_flags_reach_their_value_and_wrap_around(flag: int, count: int, epoch: int, wanted: bool) -> None:
    assert is_set(flag, count, epoch) is wanted


def test_copies_of_a_lane_keep_their_order() -> None:
    def copy(name: str, waits: tuple[int, ...], lane: int, flag: int) -> Copy:
        return Copy(name, 0, "a", (0, 0), 0, "a", (0, 0), (0, 0), waits, lane, flag, -1)

    steps = [copy("late", (0,), 0, 1), copy("behind", (), 0, 2), copy("other", (), 1, 3), copy("free", (), -1, 4)]
    flags: list[list[int]] = [[0] * 5]
    host = Host(0, [{"a": _Nothing()}], flags, [1] * 5)

    left = carry_out_ready(steps, host, 1)
    assert [step.name for step in left] == ["late", "behind"]

    flags[0][0] = 1
    assert carry_out_ready(left, host, 1) == []
    assert flags == [[1] * 5]


class _Nothing:
    """A matrix without elements."""

    def __getitem__(self, place: object) -> None: ...

    def __setitem__(self, place: object, value: object) -> None: ...
