"""Experts of a mixture: which rows are compared, with which kernels, and the errors on the tables."""

import csv
import math
import os
import re
from collections import Counter
from math import ceil
from pathlib import Path
from statistics import mean, median

import pytest

from magus.advisor.measured.tables.csv_rows import FIT, HELD_OUT, TableComparison, tables_of
from magus.advisor.measured.tables.experts import (
    EVEN,
    OTHER_RANKS,
    ExpertRow,
    chosen_us,
    expert_comparisons,
    expert_kernels,
    expert_rows,
    fused_layer_comparisons,
    stride_rows,
    with_draws,
)
from magus.advisor.measured.tables.experts import PATTERNS as EXPERT_TABLES
from magus.advisor.measured.tables.gemm import profile_of
from magus.advisor.measured.tables.samples import collective_on
from magus.advisor.measured.validate.promise_report import SMALL_US
from magus.advisor.measured.validate.report import summed_up
from magus.compiler.ir import TICKS_PER_US, DType, GroupedGemmShape, RowWiseShape, percentile
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from magus.simcore.kernels.dispatch import work_of

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
HEADER = "gpu,dtype,kernel,hidden,inter,topk,experts,tp,ep,distribution,tokens,latency_us"


def read(folder: Path, *rows: str) -> tuple[list[TableComparison], list[str]]:
    (folder / "moe_grouped_gemm.csv").write_text("\n".join([HEADER, *rows, ""]))
    found = list(expert_comparisons(folder))
    return [each for each in found if isinstance(each, TableComparison)], [e for e in found if isinstance(e, str)]


def test_a_row_is_two_products_and_three_row_wise_kernels(tmp_path: Path) -> None:
    (only,), texts = read(tmp_path, "H100-SXM,fp8,cutlass,4096,2048,8,256,2,8,balanced,100,99.5")
    rows = (4,) * 4 + (3,) * 28  # 100 rows of 32 experts
    kernels = (
        RowWiseShape(100 * 4096, 1, DType.FP8, 100 * 4096 * 2, (100, 8)),
        GroupedGemmShape(rows, 2048, 4096, DType.FP8),
        RowWiseShape(100 * 1024, 2, DType.FP8, 100 * 2048 * 2),
        GroupedGemmShape(rows, 4096, 1024, DType.FP8),
        RowWiseShape(100 * 4096, 1, DType.BF16, 100 * 4096 * 2),
    )
    gpu = profile_of("H100")

    assert gpu is not None and texts == [] and only.operation == "experts, fp8, cutlass"
    assert expert_kernels(rows, (100, 8), (4096, 1024), 2, DType.FP8) == kernels
    ticks = sum(work_of(gpu, each, gpu.sms).alone_ticks for each in kernels)
    assert only.predicted_us == ticks / TICKS_PER_US


@pytest.mark.parametrize(
    ("row", "group"),
    [
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,1,balanced,1,30", f"{FIT}, up to 8 rows each"),
        ("B200-SXM,fp8,cutlass,4096,2048,8,256,1,8,balanced,1024,90", f"{HELD_OUT}, up to 128 rows each"),
        ("B200-SXM,fp8_block,deepgemm,4096,2048,8,256,1,8,balanced,8192,200", f"{HELD_OUT}, more rows each"),
        ("B200-SXM,fp8,nongated,4096,2048,8,256,1,8,balanced,8192,200", f"{HELD_OUT}, more rows each"),
        ("B200-SXM,fp8,deepgemm,4096,2048,8,256,1,8,balanced,8192,200", "more rows each"),
    ],
)
def test_half_and_load_are_the_group_of_a_row(tmp_path: Path, row: str, group: str) -> None:
    (only,), texts = read(tmp_path, row)

    assert (only.group, texts) == (group, [])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("X9,bf16,cutlass,2048,768,8,128,1,1,balanced,1,30", "no profile of X9"),
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,4,power_law_1.01,1,30", "loads that the table does not say"),
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,4,power_law_1.2,1,30", "a kernel or model that constants were fitted"),
        ("B200-SXM,w4a16,cutlass,2048,768,8,128,1,1,balanced,1,30", "a type that is not compared"),
        ("H100-SXM,nvfp4,cutlass,2048,768,8,128,1,1,balanced,1,30", "H100 has no peak rate for nvfp4"),
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,1,balanced,1024,70", "ep 1 in 70 us: faster than the peak of H100"),
        ("H100-SXM,bf16,nongated,2048,768,8,128,1,1,balanced,1024,50", "ep 1 in 50 us: faster than the peak of H100"),
        ("H100-SXM,bf16,cutlass,2048.5,768,8,128,1,1,balanced,1,30", "not a whole number"),
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,3,balanced,1,30", "do not divide among ranks"),
        ("H100-SXM,bf16,cutlass,2048,768,8,128,1,1,balanced,1,nan", "moe_grouped_gemm.csv:2: latency_us is 'nan'"),
    ],
)
def test_other_rows_are_left_out_with_the_reason(tmp_path: Path, row: str, reason: str) -> None:
    compared, (text,) = read(tmp_path, row)

    assert compared == [] and reason in text


def test_balanced_loads_are_those_of_the_stride_on_the_first_rank() -> None:
    def slowly(tokens: int, top: int, experts: int, ranks: int) -> list[int]:
        step = ceil(experts / top)
        first = [token if tokens >= step else token * step / tokens for token in range(tokens)]
        chosen = Counter(int((each + i * step) % experts) for each in first for i in range(top))
        return [chosen[expert] for expert in range(experts // ranks) if chosen[expert]]

    for sizes in ((1, 8, 256, 8), (4, 22, 512, 64), (16, 22, 512, 128), (700, 22, 512, 4), (100, 10, 512, 8)):
        assert list(stride_rows(*sizes)) == slowly(*sizes)
    assert sum(stride_rows(1024, 22, 512, 8)) == 1024 * 22 // 8
    assert len(stride_rows(4, 22, 512, 32)) == 5 > 4 * 22 / 32  # the first of them have more than others


def test_a_choice_by_several_kernels_is_timed_with_the_experts(tmp_path: Path) -> None:
    row = "B200-SXM,fp8,nongated,4096,2048,{},512,1,512,balanced,{},9000"
    by_one, by_more, longer = (read(tmp_path, row.format(*each))[0][0] for each in ((16, 512), (17, 512), (17, 4096)))

    assert chosen_us(512, 16, 512) == 0 < chosen_us(512, 1, 513) == chosen_us(512, 17, 512) < chosen_us(4096, 17, 512)
    more_us = by_more.predicted_us - by_one.predicted_us
    assert chosen_us(512, 17, 512) < more_us < chosen_us(512, 17, 512) + 5
    assert longer.predicted_us - by_more.predicted_us > chosen_us(4096, 17, 512) - chosen_us(512, 17, 512)


def test_drawn_loads_are_those_of_the_hottest_rank(tmp_path: Path) -> None:
    row = "B200-SXM,fp8,cutlass,4096,2048,8,256,1,8,{},4096,90"
    (even,), _ = read(tmp_path, row.format("balanced"))
    (drawn,), texts = read(tmp_path, row.format("power_law_1.2"))

    assert (drawn.operation, drawn.group, texts) == ("hottest experts, fp8, cutlass", "more tokens", [])
    assert 1.2 * even.predicted_us < drawn.predicted_us < 3 * even.predicted_us


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs the measured tables")
def test_the_fitted_kernels_are_near() -> None:
    rows = [each for each in expert_comparisons(Path(DATA)) if isinstance(each, TableComparison)]
    errors = {(each.gpu, each.operation): each.median for each in summed_up(rows) if each.group == "all"}

    hot = [each.median for each in summed_up(rows) if each.operation.startswith("hot") and each.group == "more tokens"]
    assert hot and max(hot) < 18
    kinds = ("bf16, cutlass", "fp8, cutlass", "fp8_block, cutlass", "fp8_block, deepgemm")
    assert max(errors.get((gpu, f"experts, {kind}"), 0) for gpu in ("H100", "B200") for kind in kinds) < 12
    own = [errors["GB300", f"experts, {kind}"] for kind in ("fp8, cutlass", "fp8_block, deepgemm", "nvfp4, cutlass")]
    assert max(own) < 11 and errors["B200", "experts, nvfp4, cutlass"] < 12.5


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs the measured tables")
def test_many_ranks_and_few_are_off_alike_where_choices_are_counted() -> None:
    def is_long(row: ExpertRow) -> bool:
        return row.law == EVEN and row.dealt[0] > 2048 and row.dtype is not DType.BF16 and row.is_fitted

    tables = tables_of(Path(DATA), EXPERT_TABLES)
    rows = [row for path in tables for row in expert_rows(path) if isinstance(row, ExpertRow) and is_long(row)]
    gpu = profile_of("GB300")
    assert gpu is not None
    for dtype in (DType.FP8, DType.FP8_BLOCK, DType.NVFP4):
        ratios = {
            few: [
                each.us(gpu, each.even_rows) / each.time_us
                for each in rows
                if (each.gpu, each.dtype) == ("GB300", dtype) and (each.dealt[3] <= 2 if few else each.dealt[3] >= 32)
            ]
            for few in (True, False)
        }
        assert 0.95 < median(ratios[False]) < 1.05 < median(ratios[True]) < 1.17


FUSED_HEADER = "gpu,tokens_per_rank,hidden,inter,topk,experts,ep,distribution,latency_us"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("GB300,64,7168,3072,6,384,8,power_law_1.5,400", "loads that the table does not say"),
        ("GB300,64,7168,3072,6,384,64,balanced,400", "no shipped kernel"),
        ("H100-SXM,64,7168,3072,6,384,8,balanced,400", "no shipped kernel"),
        ("X9,64,7168,3072,6,384,8,balanced,400", "no shipped kernel"),
        ("GB300,64,7168,3072,6,380,8,balanced,400", "in the range of the model"),
    ],
)
def test_what_is_left_out_of_fused_layers_is_reported(tmp_path: Path, row: str, reason: str) -> None:
    (tmp_path / "moe_layer_fused.csv").write_text(f"{FUSED_HEADER}\n{row}\n")
    (text,) = fused_layer_comparisons(tmp_path)

    assert isinstance(text, str) and reason in text


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
def test_the_stated_error_of_fused_layers_comes_from_fitted_rows_and_covers_others() -> None:
    found = [each for each in fused_layer_comparisons(Path(DATA)) if isinstance(each, TableComparison)]
    rows = [each for each in found if each.group in (FIT, OTHER_RANKS)]
    errors = [abs(each.predicted_us / each.measured_us - 1) for each in rows if each.group == OTHER_RANKS]
    small = [each for each in rows if each.group == FIT and each.measured_us < SMALL_US]
    of_small = [abs(each.predicted_us / each.measured_us - 1) for each in small]
    hottest = [abs(each.measured_us / each.predicted_us - 1) <= (each.error or 0) for each in found if each not in rows]
    shipped = shipped_implementations(collective_on("B300", 8).system)
    (kernel,) = [each.experts for each in shipped if each.name == "mega_moe"]

    assert len(rows) == 2 * len(errors) == 114
    assert kernel is not None and float(kernel.error or 0) == pytest.approx(percentile(of_small, 90), rel=0.01)
    assert median(errors) < 0.04 and mean(error <= float(kernel.error or 0) for error in errors) > 0.9
    assert len(hottest) == 342 and mean(hottest) > 0.8
    assert kernel.shortest_ticks == pytest.approx(min(each.measured_us for each in rows) * TICKS_PER_US, rel=0.001)


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
def test_the_hottest_rank_of_ten_sampled_routings_is_near_without_a_constant_of_its_own() -> None:
    rows = [each for each in fused_layer_comparisons(Path(DATA)) if isinstance(each, TableComparison)]
    errors = [abs(each.predicted_us / each.measured_us - 1) for each in rows if "sampled" in each.group]

    assert len(errors) == 114 and mean(errors) < 0.075 and median(errors) < 0.07


def test_drawn_loads_of_a_fused_layer_are_those_of_its_hottest_rank(tmp_path: Path) -> None:
    laws = ("balanced", "power_law_1.01", "power_law_1.2", "power_law_sampled_1.9")
    rows = [f"GB300,1024,7168,3072,6,384,8,{law},900" for law in laws]
    (tmp_path / "moe_layer_fused.csv").write_text("\n".join([FUSED_HEADER, *rows, ""]))
    even, less, more, sampled = (e for e in fused_layer_comparisons(tmp_path) if isinstance(e, TableComparison))

    assert even.predicted_us < less.predicted_us < more.predicted_us
    assert 1.1 * even.predicted_us < sampled.predicted_us and sampled.group == laws[-1]
    assert even.error and sampled.error and more.error
    assert even.error < sampled.error < more.error  # the spread of one draw is wider than that of a mean of ten


def test_an_error_with_draws_is_that_alone_where_all_draws_are_alike() -> None:
    assert with_draws(0.1, [5.0, 5.0, 5.0], 1) == pytest.approx(0.1)
    one, ten = with_draws(0.1, [4.0, 5.0, 6.25], 1), with_draws(0.1, [4.0, 5.0, 6.25], 10)
    spread = math.log(1.25)
    assert one == pytest.approx(math.hypot(0.1, 1.645 * spread * math.sqrt(1 + 1 / 3)))
    assert 0.1 < ten < one


@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
def test_another_table_of_the_fused_layer_is_as_far_off_as_its_page_says(tmp_path: Path) -> None:
    """DeepGEMM's own figures of two models, of which nothing was fitted; its GPU is a Blackwell without a name."""
    lines = [FUSED_HEADER]
    with (Path(DATA) / "overlap_kernels_3.csv").open() as table:
        for row in csv.DictReader(table):
            if row["dtype"] == "fp8 x fp4" and "MegaMoE" in row["impl"]:
                experts = re.findall(r"E(\d+)", row["shape_semantics"])[0]
                lines.append(f"GB300,{row['m']},{row['k']},{row['n']},6,{experts},8,balanced,{row['time_us']}")
    (tmp_path / "moe_layer_fused.csv").write_text("\n".join([*lines, ""]))
    found = [each for each in fused_layer_comparisons(tmp_path) if isinstance(each, TableComparison)]
    errors = [abs(each.predicted_us / each.measured_us - 1) for each in found]

    assert len(errors) == 8 and max(errors) > 0.4  # one token of a rank
    assert (mean(errors), median(errors)) == pytest.approx((0.117, 0.085), abs=0.005)
