"""Parts of grouped GEMMs and of attention: together they are the whole, and what cutting costs is charged."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import (
    TICKS_PER_SECOND,
    AttentionShape,
    DType,
    EngineChoice,
    EngineKind,
    GroupedGemmShape,
    OpCase,
    OpChoice,
    TileGroup,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore.kernels.attention import attention_work
from magus.simcore.kernels.dispatch import compute_shape, compute_work, whole_shape
from magus.simcore.kernels.grouped_gemm import first_rows
from tests.helpers.scenarios.scenarios import h100
from tests.helpers.scenarios.workloads import TEXTS, choices_of, workload_of

DMA = EngineChoice(EngineKind.DMA, 3)
EXPERTS = st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any).map(tuple)


def in_order(rows: tuple[int, ...]) -> list[int]:
    """The expert of every row, by sorting all places."""
    places = [(Fraction(2 * i + 1, 2 * each), e) for e, each in enumerate(rows) for i in range(each)]
    return [e for _, e in sorted(places)]


@given(EXPERTS)
def test_rows_are_dealt_one_by_one(rows: tuple[int, ...]) -> None:
    dealt = in_order(rows)

    for count in range(len(dealt) + 1):
        of = Counter(dealt[:count])
        assert first_rows(rows, count) == tuple(of[e] for e in range(len(rows)))


@given(EXPERTS, st.integers(0, 700))
def test_every_expert_has_its_share_of_any_run_of_rows(rows: tuple[int, ...], count: int) -> None:
    count = min(count, sum(rows))
    found = first_rows(rows, count)

    assert sum(found) == count and first_rows(rows, sum(rows)) == rows
    # The method of Webster leaves the quota, but not by a row for each other expert (Balinski and Young).
    assert all(
        abs(each - Fraction(count * of, sum(rows))) < max(1, len(rows) / 2)
        for each, of in zip(found, rows, strict=True)
    )


def groups_of(scenario: OpCase, choice: OpChoice, kernel: int) -> list[TileGroup]:
    steps = build_op_plan(scenario, choice).steps
    return [step for step in steps if isinstance(step, TileGroup) and step.kernel == kernel]


@pytest.mark.parametrize("name", [name for name in TEXTS if "grouped" in name])
def test_groups_of_experts_are_the_whole(name: str) -> None:
    scenario = workload_of(name)
    kernel = int(name.endswith("+grouped_gemm") and scenario.shape.then is not None)
    whole = scenario.shape.stage(kernel).kernel
    assert isinstance(whole, GroupedGemmShape) and whole_shape(scenario, kernel) == whole

    for choice in choices_of(scenario):
        groups = groups_of(scenario, choice, kernel)
        shapes = [compute_shape(scenario, group) for group in groups]
        assert sum(shape.flops for shape in shapes) == whole.flops
        if choice.template != "uniform_fused_2d":
            rows = [shape.rows for shape in shapes if isinstance(shape, GroupedGemmShape)]
            assert tuple(map(sum, zip(*rows, strict=True))) == whole.rows


@pytest.mark.parametrize("name", [name for name in TEXTS if "attention" in name])
def test_groups_of_attention_are_the_whole_or_a_hair_more(name: str) -> None:
    scenario = workload_of(name)
    whole = whole_shape(scenario)
    assert isinstance(whole, AttentionShape)

    for choice in choices_of(scenario):
        groups = groups_of(scenario, choice, 0)
        flops = sum(compute_shape(scenario, group).flops for group in groups)
        # A group counts whole keys for a query: at most one too many for each.
        assert whole.flops <= flops <= whole.flops * (1 + 2 * len(groups) / whole.kv_len), choice
        if not whole.causal and "causal" not in name:
            assert flops == whole.flops


def test_a_causal_mask_hides_half_of_what_is_gathered() -> None:
    full, half = (whole_shape(workload_of(f"AG+attention{mask}")) for mask in ("", " causal"))

    assert isinstance(full, AttentionShape) and isinstance(half, AttentionShape)
    assert (full.q_len, full.kv_len) == (256, 1024) and (half.q_len, half.kv_len) == (256, 513)


def test_parts_over_keys_read_and_write_the_output_in_fp32() -> None:
    """Eight heads of 256 queries: 64 numbers and two more a row; alone, the output is written once in bf16."""
    scenario = workload_of("AG+attention")
    steps = build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, DMA)).steps
    groups = [step for step in steps if isinstance(step, TileGroup)]
    queries, partial = 8 * 256 * 64 * 2, 8 * 256 * 66 * 4

    works = [compute_work(scenario, group, 132) for group in groups]
    keys = [2 * 4 * 64 * 2 * sum(region.rows.size for region in group.regions) for group in groups]
    assert [work.hbm_write_bytes for work in works] == [partial] * 3
    read = [work.hbm_read_bytes - queries - own for work, own in zip(works, keys, strict=True)]
    assert read == [0, partial, partial]
    whole = build_op_plan(scenario, OpChoice("serial", 4, DMA)).steps[-1]
    assert isinstance(whole, TileGroup) and compute_work(scenario, whole, 132).hbm_write_bytes == queries


def test_memory_bounds_attention_over_few_keys() -> None:
    shape = AttentionShape(1, 64, 8, 4096, 64, 128, DType.BF16, False)
    part = AttentionShape(1, 64, 8, 4096, 64, 128, DType.BF16, False, partial=True)

    once, again = attention_work(h100(), shape, 132), attention_work(h100(), part, 132, accumulate=True)
    num_bytes = again.hbm_read_bytes + again.hbm_write_bytes
    assert again.hbm_write_bytes == 4 * 64 * 4096 * 130
    assert again.body_ticks >= num_bytes / h100().hbm.achieved_bytes_per_s * TICKS_PER_SECOND > 2 * once.body_ticks
