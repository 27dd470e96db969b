"""The working set of a tiled GEMM against simulated LRU caches, and the hits of buffers that are read again."""

import math
import random
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import DType, GemmShape
from magus.simcore.kernels.working_set import extra_hbm_bytes, hit_share
from tests.helpers.marks import examples, thinned

KIB = 1 << 10
LINE, WAYS, K_STEP, WORD = KIB, 16, 64, 2
# m, n, k, tile, SMs, L2 instances, group
CASES = (
    (1024, 1024, 1024, (128, 128), 16, 1, 8),
    (2048, 2048, 512, (128, 128), 24, 1, 8),
    (2048, 1024, 512, (64, 128), 20, 1, 8),
    (512, 2048, 1024, (128, 64), 10, 1, 4),
    (2048, 2048, 512, (128, 128), 32, 4, 8),
    (1536, 1280, 768, (128, 128), 13, 1, 8),
)
CAPACITIES = tuple(round(256 * KIB * 2 ** (step / 2)) for step in range(14))
Case = tuple[int, int, int, tuple[int, int], int, int, int]


def order(case: Case) -> list[tuple[int, int]]:
    """Row and column of each tile, in the order of the launch."""
    m, n, _, (tile_m, tile_n), _, _, group = case
    rows, cols = math.ceil(m / tile_m), math.ceil(n / tile_n)
    return [
        (row, col)
        for first in range(0, rows, group)
        for col in range(cols)
        for row in range(first, min(rows, first + group))
    ]


def touched(case: Case, tiles: list[tuple[int, int]], per_wave: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Blocks in the order in which a cache sees them: operand, panel, step of k, lines, and 0 for a write."""
    _, _, k, (tile_m, tile_n), _, _, _ = case
    lines_a, lines_b = tile_m * K_STEP * WORD // LINE, tile_n * K_STEP * WORD // LINE
    for first in range(0, len(tiles), per_wave):
        wave = tiles[first : first + per_wave]
        for step in range(k // K_STEP):
            for row, col in wave:
                yield "a", row, step, lines_a, 1
                yield "b", col, step, lines_b, 1
        for row, col in wave:
            yield "c", row, col, tile_m * tile_n * WORD // LINE, 0


def lru_read_bytes(case: Case, capacity: int, num_ways: int) -> int:
    """Bytes that caches of ``capacity`` each fetch: exact LRU in hashed sets of ``num_ways`` lines."""
    tiles, (sms, instances) = order(case), case[4:6]
    edges = [index * len(tiles) // instances for index in range(instances + 1)]
    read, num_sets = 0, max(1, capacity // LINE // num_ways)
    for first, stop in pairwise(edges):
        sets: list[OrderedDict[object, None]] = [OrderedDict() for _ in range(num_sets)]
        for operand, panel, step, lines, reads in touched(case, tiles[first:stop], sms // instances):
            for line in range(lines):
                key = (operand, panel, step, line)
                held = sets[hash(("abc".index(operand), panel, step, line)) % num_sets]
                if key in held:
                    held.move_to_end(key)
                    continue
                read += LINE * reads
                held[key] = None
                if len(held) > num_ways:
                    held.popitem(last=False)
    return read


def model_read_bytes(case: Case, capacity: int) -> int:
    """Bytes that the model reads."""
    m, n, k, tile, sms, instances, group = case
    extra = extra_hbm_bytes(GemmShape(m, n, k, DType.BF16), tile, sms, capacity, instances, group)
    return extra + (m + n) * k * WORD


@cache
def curves(case: Case) -> tuple[list[int], list[int]]:
    """Bytes read by the model and by the 16-way cache, by capacity."""
    model = [model_read_bytes(case, capacity) for capacity in CAPACITIES]
    return model, [lru_read_bytes(case, capacity, WAYS) for capacity in CAPACITIES]


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", thinned(CASES, 3))
def test_the_model_is_near_a_fully_associative_cache_at_every_capacity(case: Case) -> None:
    model, _ = curves(case)
    cache_reads = [lru_read_bytes(case, capacity, capacity // LINE) for capacity in CAPACITIES]

    assert model == pytest.approx(cache_reads, rel=0.05)


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", thinned(CASES, 2))
def test_away_from_a_cliff_it_is_near_a_cache_of_sixteen_ways(case: Case) -> None:
    model, cache_reads = curves(case)
    flat = [index for index in range(1, len(model) - 1) if model[index - 1] < 1.05 * model[index + 1]]

    assert len(flat) >= 6
    for index in flat:
        assert model[index] == pytest.approx(cache_reads[index], rel=0.12)


@pytest.mark.parametrize("case", thinned(CASES, 2))
def test_the_cliff_is_where_the_cache_has_it(case: Case) -> None:
    def halfway(reads: list[int]) -> int:
        return next(c for c, read in zip(CAPACITIES, reads, strict=True) if 2 * read <= max(reads) + min(reads))

    model, cache_reads = curves(case)

    assert max(model) > 1.9 * min(model), "or there is no cliff"
    assert 1 / 1.5 <= halfway(model) / halfway(cache_reads) <= 1.5


@examples(20, deep=400)
@given(
    rows=st.integers(1, 14),
    cols=st.integers(1, 14),
    steps=st.integers(8, 16),
    sms=st.integers(2, 24),
    group=st.integers(1, 9),
    kib=st.integers(256, 4096),
)
def test_any_grid_is_near_a_fully_associative_cache(
    rows: int, cols: int, steps: int, sms: int, group: int, kib: int
) -> None:
    case = (64 * rows, 64 * cols, K_STEP * steps, (64, 64), sms, 1, group)
    capacity = kib * KIB
    low, high = (lru_read_bytes(case, size, size // LINE) for size in (capacity * 5 // 4, capacity * 4 // 5))

    # The model knows no steps of k, and one is up to an eighth of K here: hence the range of capacities.
    assert 0.98 * low <= model_read_bytes(case, capacity) <= 1.02 * high


def test_one_wave_reads_everything_once_however_small_the_cache() -> None:
    assert extra_hbm_bytes(GemmShape(512, 512, 4096, DType.BF16), (128, 128), 16, 0, 1) == 0


def test_two_waves_without_a_cache_by_hand() -> None:
    # 2 x 4 tiles in columns: each wave of four takes both row panels and two of the column panels; A is read twice.
    shape = GemmShape(256, 512, 1024, DType.BF16)

    assert extra_hbm_bytes(shape, (128, 128), 4, 0, 1) == 256 * 1024 * WORD


def test_caches_apart_each_read_what_they_share() -> None:
    # Two caches, each with half of the columns and all of the rows.
    shape = GemmShape(256, 512, 1024, DType.BF16)

    assert extra_hbm_bytes(shape, (128, 128), 8, 1 << 30, 2) == 256 * 1024 * WORD
    assert extra_hbm_bytes(shape, (128, 128), 8, 1 << 30, 1) == 0


dims = st.integers(1, 6000)


@given(dims, dims, dims, st.integers(8, 304), st.sampled_from((1, 8)), st.integers(0, 1 << 26), st.integers(0, 1 << 26))
def test_a_larger_cache_never_reads_more(
    m: int, n: int, k: int, sms: int, instances: int, capacity: int, more: int
) -> None:
    shape = GemmShape(m, n, k, DType.BF16)
    small = extra_hbm_bytes(shape, (128, 256), sms, capacity, instances)
    large = extra_hbm_bytes(shape, (128, 256), sms, capacity + more, instances)

    assert 0 <= large <= small
    assert extra_hbm_bytes(shape, (128, 256), sms, 1 << 50, 1) == 0


@pytest.mark.parametrize("bad", [{"sms": 4}, {"capacity_bytes": -1}, {"tile": (0, 128)}, {"group": 0}])
def test_impossible_caches_are_refused(bad: dict[str, int]) -> None:
    good = {"tile": (128, 128), "sms": 8, "capacity_bytes": 1, "instances": 8, "group": 8}
    with pytest.raises(ValueError, match="no working set"):
        extra_hbm_bytes(GemmShape(1, 1, 1, DType.BF16), **(good | bad))  # type: ignore[arg-type]


def random_replacement_hits(lines: int, capacity: int) -> float:
    """Hits of a sweep over ``lines``, again and again, in a cache that evicts at random."""
    choose = random.Random(0)
    slots: list[int] = list(range(min(lines, capacity)))
    held = set(slots)
    hits, sweeps = 0, 30
    for sweep in range(sweeps + 10):
        for line in range(lines):
            if line in held:
                hits += sweep >= 10
            else:
                victim = choose.randrange(capacity)
                held.remove(slots[victim])
                held.add(line)
                slots[victim] = line
    return hits / (sweeps * lines)


@pytest.mark.parametrize("lines", [400, 512, 520, 600, 700, 800, 1024, 1500, 2048])
def test_the_hit_share_is_between_lru_and_the_best_and_near_random_replacement(lines: int) -> None:
    share = float(hit_share(lines, 512))

    assert share <= min(1.0, 512 / lines)
    assert share == pytest.approx(random_replacement_hits(lines, 512), abs=0.22)
    assert (share == 1) == (lines <= 512)


def test_the_hit_share_falls_in_a_line() -> None:
    assert [hit_share(size, 4) for size in (0, 4, 5, 6, 7, 8, 99)] == [1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert hit_share(1, 0) == 0
    with pytest.raises(ValueError, match="negative"):
        hit_share(-1, 4)
