"""What a group of tiles computes of a kernel that is no GEMM and stands before or after a collective.

Rows of a group are those of the moved tensor, by position in the blocks of ranks r, r + 1, ...

- grouped GEMM: every block holds rows of all experts, evenly mixed. They are dealt to the rows one by one by the
  divisor method of Webster (Sainte-Lague): any run of rows has its share of each expert, to a few rows, and all rows
  together have exactly what each expert has.
- attention after an all_gather: the queries of the rank against the keys of the group. If these are not all keys the
  result is partial.
- attention after an all_to_all: all queries and keys of the heads of the group.
- attention before an all_to_all: the queries of the group against all keys.

With a causal mask, the share of keys that a block of queries sees of a block of keys depends on where the two lie in
the sequence. Frameworks deal positions to ranks so that it is the same for all: in stripes (Brandon et al., Striped
Attention, arXiv 2311.09431), or by one early and one late chunk for each rank (Llama 3, arXiv 2407.21783, section
3.3.2). A group that is a part then counts each query as seeing the mean share of the keys of the group.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ...compiler.ir import AttentionShape, GroupedGemmShape, Region, Scenario, TileGroup, tile_cols, tile_rows


def experts_part(scenario: Scenario, whole: GroupedGemmShape, group: TileGroup) -> GroupedGemmShape:
    """The rows of each expert in ``group``, with its columns and its slice of the inner dimension."""
    counts = [0] * len(whole.rows)
    for start, stop in _positions(scenario, group.regions):
        first, last = first_rows(whole.rows, start), first_rows(whole.rows, stop)
        counts = [count + after - before for count, before, after in zip(counts, first, last, strict=True)]
    return replace(whole, rows=tuple(counts), n=group.regions[0].cols.size, k=group.k.size)


@lru_cache(maxsize=8192)
def first_rows(rows: tuple[int, ...], count: int) -> tuple[int, ...]:
    """How many of the first ``count`` rows belong to each expert, of which expert e has ``rows[e]`` in all.

    Row i of expert e comes at the place (2 i + 1) / (2 rows[e]) of the whole, of equal ones the first expert's first.

    >>> first_rows((4, 2, 2), 4), first_rows((4, 2, 2), 8)
    ((2, 1, 1), (4, 2, 2))
    """
    total = sum(rows)
    found = [(2 * count * each + total) // (2 * total) for each in rows]
    experts = range(len(rows))
    while sum(found) < count:
        one = min((e for e in experts if found[e] < rows[e]), key=lambda e: (Fraction(2 * found[e] + 1, rows[e]), e))
        found[one] += 1
    while sum(found) > count:
        one = max((e for e in experts if found[e]), key=lambda e: (Fraction(2 * found[e] - 1, rows[e]), e))
        found[one] -= 1
    return tuple(found)


def _positions(scenario: Scenario, regions: tuple[Region, ...]) -> Iterator[tuple[int, int]]:
    """Where the rows of each region begin and end among all rows, block after block."""
    workload, n = scenario.workload, scenario.num_ranks
    for region in regions:
        before = sum(tile_rows(workload, n, owner) for owner in range(region.owner % n))
        yield before + region.rows.start, before + region.rows.stop


def attention_part(scenario: Scenario, whole: AttentionShape, group: TileGroup) -> AttentionShape:
    """The heads, queries and keys of ``group``."""
    workload, n = scenario.workload, scenario.num_ranks
    rows = sum(region.rows.size for region in group.regions)
    all_rows = sum(tile_rows(workload, n, owner) for owner in range(n))
    moved = workload.moved
    assert moved is not None, "this attention stands before or after a collective"
    after = workload.pattern.consumes
    width, of = (group.k.size, moved.cols) if after else (group.regions[0].cols.size, tile_cols(workload))
    part = replace(whole, heads=whole.heads * width // of, kv_heads=whole.kv_heads * width // of)
    if workload.pattern.gathers:
        keys = -(-rows // whole.batch)
        # All queries of the sequence, those of other ranks too, see as many on the mean as those of this rank.
        every = replace(whole, q_len=whole.kv_len)
        return replace(part, kv_len=_seen(every, keys), causal=False, partial=rows < all_rows)
    if rows == all_rows:
        return part
    return replace(part, q_len=-(-rows // whole.batch), kv_len=_seen(whole, whole.kv_len), causal=False)


def _seen(whole: AttentionShape, keys: int) -> int:
    """How many of ``keys`` a query of ``whole`` sees on the mean, rounded up."""
    return -(-keys * whole.pairs // (whole.q_len * whole.kv_len))
