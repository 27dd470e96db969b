"""The fitted GEMM form over arrays equals the scalar one; tables become comparisons; a sample agrees when simulated."""

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from magus.advisor.measured.tables.csv_rows import FIT, HELD_OUT, MeasuredError, MissingTable, TableComparison
from magus.advisor.measured.tables.gemm import (
    ALL,
    LARGE,
    LAYERED,
    LONG,
    GemmTable,
    gemm_comparisons,
    gemm_tables,
    label_of,
    peak_us,
    predicted_us,
    profile_of,
)
from magus.advisor.measured.tables.gemm_times import LOOPED_READS, gemm_ticks, memory_in_loop
from magus.advisor.measured.tables.samples import gemm_sample
from magus.compiler.ir import DType, GemmShape, Gpu
from magus.simcore.kernels.gemm import gemm_work
from tests.helpers.marks import first
from tests.helpers.scenarios.scenarios import by_waves, h100, mi300x
from tests.helpers.some import some

HEAD = "gpu,op,m,n,k,dtype,time_us,tflops,kernel\n"
DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
GPUS = ("GB300", "A100", "B200", "H100")


def paired() -> Gpu:
    """An H100 with tiles for pairs of SMs."""
    gemm = replace(h100().gemm, pair_tiles=((256, 128), (128, 256), (256, 192), (192, 256), (256, 256)))
    return replace(h100(), gemm=gemm)


def clustered() -> Gpu:
    """The same in clusters of four, next to no overhead of a tile, and an L2 that kernels wait for."""
    gpu = paired()
    gemm = replace(gpu.gemm, cluster=4, tile_ticks=1000)
    return replace(gpu, gemm=gemm, l2=replace(gpu.l2, bytes_per_s=gpu.l2.bytes_per_s // 4))


def some_shapes(seed: int, count: int) -> list[tuple[int, int, int]]:
    """Sizes from 1 to 2^16, spread over the orders of magnitude, half of them round."""
    rng = random.Random(seed)

    def size() -> int:
        power = rng.randint(0, 16)
        return 1 << power if rng.random() < 0.5 else rng.randint(1, 1 << power)

    return [(size(), size(), size()) for _ in range(count)]


def scalar_ticks(gpu: Gpu, shape: tuple[int, int, int], dtype: DType = DType.BF16) -> int:
    return gemm_work(gpu, GemmShape(*shape, dtype), gpu.sms).alone_ticks


@pytest.mark.parametrize(
    "gpu",
    [h100(), mi300x(), paired(), clustered(), by_waves()],
    ids=["H100", "MI300X", "pairs", "clusters", "fewest waves"],
)
def test_many_gemms_take_what_each_takes(gpu: Gpu) -> None:
    shapes = some_shapes(seed=1, count=400)

    found = gemm_ticks(gpu, np.array(shapes))

    assert found.tolist() == [scalar_ticks(gpu, shape) for shape in shapes]


@pytest.mark.parametrize(
    ("name", "dtype"), [("H100", DType.FP8), ("B300", DType.FP8), ("H100", DType.FP8_BLOCK), ("B200", DType.NVFP4)]
)
def test_gemms_of_a_type_take_its_constants(name: str, dtype: DType) -> None:
    gpu, shapes = profile_of(name), some_shapes(seed=2, count=200)
    assert gpu is not None
    own = gpu.gemm.of(dtype)
    plain = replace(gpu, gemm=own)

    ticks = [scalar_ticks(gpu, shape, dtype) for shape in shapes]

    assert own is not gpu.gemm and ticks == gemm_ticks(gpu, np.array(shapes), dtype).tolist()
    assert ticks == [scalar_ticks(plain, shape, dtype) for shape in shapes]
    assert scalar_ticks(gpu, (64, 64, 64)) == scalar_ticks(replace(gpu, gemm=replace(gpu.gemm, fp8=None)), (64, 64, 64))


def test_a_simulated_gemm_of_fp8_takes_what_the_form_says() -> None:
    shapes = [(64, 4096, 4096), (4096, 4096, 4096), (8192, 1024, 8192)]

    found = gemm_sample(GemmTable("H100", dict.fromkeys(shapes, 1.0), dtype=DType.FP8), 3, 0).agreement(lambda: None)

    assert found is not None and found.rows == 3 and found.agrees and found.counted == "3 of fp8 GEMM"


def test_the_largest_dimensions_do_not_overflow() -> None:
    largest = (1 << 20, 1 << 20, 1 << 20)

    found = int(gemm_ticks(h100(), np.array([largest]))[0])

    assert found == pytest.approx(scalar_ticks(h100(), largest), rel=1e-9)


def write(folder: Path, rows: list[str], name: str = "gemm_h100_sxm.csv") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return folder


def found_in(folder: Path) -> tuple[list[GemmTable], list[str]]:
    found = list(gemm_tables(folder))
    return [each for each in found if isinstance(each, GemmTable)], [each for each in found if isinstance(each, str)]


def test_a_row_of_fp8_is_compared_without_the_cast_of_its_input(tmp_path: Path) -> None:
    rows = ["H100-SXM-80GB,gemm,64,512,512,fp8,14.0,0,t", "H100-SXM-80GB,gemm,64,512,1024,fp8,14.0,0,t"]
    rows += ["H100-SXM-80GB,gemm,128,512,512,fp8,14.0,0,t", "H100-SXM-80GB,gemm,64,512,512,bf16,14.0,0,t"]
    casts = ["computescale,64,512,fp8,7.0", "scale_matrix,64,512,fp8,2.5", "computescale,64,1024,fp8,7.0"]
    casts += ["computescale,128,512,fp8,9.0", "scale_matrix,128,512,fp8,5.0"]
    folder = write(tmp_path, rows)
    cast_rows = "".join(f"H100-SXM,{row}\n" for row in casts)
    (folder / "quantize.csv").write_text(f"gpu,op,m,k,dtype,time_us\n{cast_rows}")

    tables, left_out = found_in(folder)

    assert [(each.dtype.value, dict(each.times_us)) for each in tables] == [
        ("fp8", {(64, 512, 512): 4.5}),
        ("bf16", {(64, 512, 512): 14.0}),
    ]
    reason = "fp8 with the cast of the input in it, which no table of quantize*.csv has"
    assert left_out == [f"gemm_h100_sxm.csv: 2 rows: {reason}"], "half a cast is none, nor one as long as the row"
    compared = list(gemm_comparisons(tables[0]))
    assert {each.operation for each in compared} == {"gemm fp8", "gemm fp8, n,k >= 512"}


def test_a_row_of_a_type_with_scales_is_compared_without_one_pass_over_its_input(tmp_path: Path) -> None:
    rows = [
        f"{gpu},gemm,64,512,{k},{dtype},14.0,0,t"
        for gpu, k, dtype in (("B200-SXM", 512, "nvfp4"), ("B200-SXM", 1024, "fp8_block"), ("H100-SXM", 512, "nvfp4"))
    ]
    folder = write(tmp_path, rows, "gemm_more.csv")
    casts = "computescale,64,512,fp8,7.0", "scale_matrix,64,512,fp8,2.5", "scale_matrix,64,1024,fp8,3"
    cast_rows = "".join(f"B200-SXM,{row}\n" for row in casts)
    (folder / "quantize.csv").write_text(f"gpu,op,m,k,dtype,time_us\n{cast_rows}")

    tables, left_out = found_in(folder)

    assert {each.dtype.value: dict(each.times_us) for each in tables} == {
        "nvfp4": {(64, 512, 512): 11.5},
        "fp8_block": {(64, 512, 1024): 11.0},
    }
    assert left_out == ["gemm_more.csv: 1 row: H100 has no peak rate for nvfp4"]
    compared = [each for table in tables for each in gemm_comparisons(table)]
    assert {each.group for each in compared} == {f"{FIT}, 64 <= m < 512", f"{HELD_OUT}, 64 <= m < 512"}


def test_rows_left_out_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        "H100-SXM-80GB,gemm,64,512,512,bf16,3.0,0,t",
        "H100-SXM-80GB,gemm,64,512,512,bf16,5.0,0,t",
        "H100 SXM,gemm,64,512,512,bf16,4.0,0,t",
        "H100-SXM-80GB,gemm,64,512,512,fp8,3.0,0,t",
        "H100-SXM-80GB,gemm,64,512,512,fp8,3.0,0,t",
        "Z9000,gemm,64,512,512,bf16,3.0,0,t",
        "H100-SXM-80GB,gemm,64.5,512,512,bf16,3.0,0,t",
        "H100-SXM-80GB,gemm,1e7,512,512,bf16,3.0,0,t",
        "H100-SXM-80GB,gemm,64,512,512,bf16,?,0,t",
    ]

    (table,), left_out = found_in(write(tmp_path, rows))

    assert (table.gpu, dict(table.times_us)) == ("H100", {(64, 512, 512): 4.0})
    assert left_out == [
        "gemm_h100_sxm.csv:10: time_us is '?', not a number above zero",
        "gemm_h100_sxm.csv: 2 rows: fp8 with the cast of the input in it, which no table of quantize*.csv has",
        "gemm_h100_sxm.csv: 1 row: there is no profile of Z9000",
        "gemm_h100_sxm.csv: 2 rows: a dimension is not a whole number up to 1048576",
    ]


def test_rows_above_the_peak_are_named(tmp_path: Path) -> None:
    rows = [f"H100-SXM,gemm,8192,8192,{k},bf16,{us},0,t" for k, us in ((8192, 1111), (4096, 557), (2048, 2.8))]
    (table,), left_out = found_in(write(tmp_path, rows))

    assert peak_us(h100(), DType.BF16, (8192, 8192, 8192)) == pytest.approx(2 * 8192**3 / 989e6, rel=1e-3)
    assert dict(table.times_us) == {(8192, 8192, 4096): 557.0}
    reason = "8192 x 8192 x 8192, bf16, in 1111 us and 1 more: faster than the peak of H100"
    assert left_out == [f"gemm_h100_sxm.csv: {reason}"]
    assert not found_in(write(tmp_path / "alone", rows[:1]))[0]


def test_tables_of_other_collectors_are_left_alone(tmp_path: Path) -> None:
    tables, left_out = found_in(write(tmp_path, ["not,a,row"], "gemm_mi300x_iree.csv"))

    assert not tables
    assert left_out == ["gemm_mi300x_iree.csv: not compared: another collector, with warm caches or tuned kernels"]


def test_a_folder_without_tables_and_a_table_without_columns_are_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="no table"):
        list(gemm_tables(tmp_path))
    (tmp_path / "gemm_h100_sxm.csv").write_text("gpu,m\nH100,1\n")
    with pytest.raises(MeasuredError, match="no column dtype, n, k, time_us"):
        list(gemm_tables(tmp_path))


@pytest.mark.parametrize("name", ["../../etc", 'H100"; fabric', "H100}", ""])
def test_a_name_that_is_no_gpu_has_no_profile(name: str) -> None:
    assert profile_of(name) is None


def test_rows_become_comparisons_in_size_classes_and_ratios() -> None:
    times = {(4096, 512, 1024): 20.0, (512, 512, 1024): 4.0, (4096, 64, 1024): 5.0, (8, 4096, 4096): 9.0}

    found = list(gemm_comparisons(GemmTable("H100", times)))

    by_operation: dict[str, list[TableComparison]] = {}
    for each in found:
        by_operation.setdefault(each.operation, []).append(each)
    assert [each.group for each in by_operation[ALL]] == ["m >= 512", "m >= 512", "m >= 512", "m < 64"]
    assert [each.label for each in by_operation[LARGE]] == ["4096 x 512 x 1024", "512 x 512 x 1024", "8 x 4096 x 4096"]
    (rows,), (cols,) = by_operation["ratio M/8"], by_operation["ratio N/8"]
    assert (rows.measured_us, cols.measured_us) == (8 * 4 / 20, 8 * 5 / 20)
    predicted = predicted_us("H100", list(times))
    assert rows.predicted_us == 8 * predicted[512, 512, 1024] / predicted[4096, 512, 1024]
    assert "ratio K/8" not in by_operation


def test_a_sample_agrees_with_the_closed_form_and_depends_on_the_seed_alone() -> None:
    rng = random.Random(7)
    sizes = (48, 200, 1024, 3072)  # one column would be another kernel
    times = {(rng.choice((1, *sizes)), rng.choice(sizes), rng.choice(sizes)): 1.0 for _ in range(40)}
    table = GemmTable("H100", times)
    ticked = []

    once = gemm_sample(table, 12, 3).agreement(lambda: ticked.append(1))
    again = gemm_sample(table, 12, 3).agreement(lambda: None)

    assert once is not None
    assert once == again
    assert (once.rows, len(ticked), once.too_large) == (12, 12, 0)
    assert once.agrees


def test_a_sample_leaves_out_what_is_too_large_to_simulate() -> None:
    table = GemmTable("H100", {(1 << 20, 1 << 20, 64): 1.0, (64, 64, 64): 1.0})

    found = gemm_sample(table, 5, 0).agreement(lambda: None)

    assert found is not None
    assert (found.rows, found.too_large) == (1, 1)
    assert gemm_sample(table, 0, 0).agreement(lambda: None) is None


MOST = {
    ("H100", DType.FP8_BLOCK): (0.15, 0.14),  # M beyond a multiple of 64 takes up to twice as long
    ("B200", DType.NVFP4): (0.08, 0.06),
    ("GB300", DType.NVFP4): (0.13, 0.12),
    ("GB300", DType.FP8): (0.15, 0.11),
}
"""Largest mean errors of all shapes, and of those with n, k >= 512, where they are not those of the type."""


@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
@pytest.mark.parametrize("gpu", first(GPUS, 1))
def test_measured_gemms_of_every_gpu_are_met(gpu: str) -> None:
    tables, _ = found_in(Path(DATA))

    assert {table.gpu for table in tables} == set(GPUS)
    for table in some([each for each in tables if each.gpu == gpu]):
        names = [name.replace("bf16", table.dtype.value) for name in (ALL, LARGE)]
        rows = [each for each in gemm_comparisons(table) if each.operation in names and FIT not in each.group]
        every, large = (
            np.mean([abs(each.predicted_us / each.measured_us - 1) for each in rows if each.operation == name])
            for name in names
        )
        limits = MOST.get((table.gpu, table.dtype), (0.10, 0.09) if table.dtype is DType.BF16 else (0.13, 0.10))
        assert every <= limits[0] and large <= limits[1], (table.gpu, table.dtype)


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        ((8192, 128, 2048), None),  # 32 MB of input, 5 weights of 0.5 MB and an output of 2 MB are below 126.5 MB
        ((65536, 128, 1024), 1.0),  # an input of 134 MB
        ((4096, 4096, 4096), 1.0),  # 4 weights of 32 MB
        ((4096, 2048, 2048), None),  # 5 of 8 MB
    ],
)
def test_a_loop_finds_its_operands_in_the_l2_where_all_fit(shape: tuple[int, int, int], share: float | None) -> None:
    gpu = profile_of("B200")
    assert gpu is not None
    m, n, k = shape
    read, written = (m + n) * k, m * n
    expected = (read / LOOPED_READS + written) / (read + written) if share is None else share

    assert memory_in_loop(gpu, np.array([shape]), DType.BF16) == pytest.approx([expected])


def test_gemms_of_many_rows_are_compared_in_their_loop_and_as_by_a_layer() -> None:
    """In a loop none is longer, and those that do not fit the L2 take as long: a layer is off by no more of them."""
    shapes = [(2048, 128, 2048), (8192, 128, 2048), (8192, 8192, 8192)]
    table = GemmTable("B200", dict.fromkeys(shapes, 100.0))
    found = [row for row in gemm_comparisons(table) if row.operation in (LONG, LAYERED)]
    looped, alone = ([row.predicted_us for row in found if row.operation == name] for name in (LONG, LAYERED))

    assert [row.label for row in found] == [label_of(shape) for shape in shapes[1:]] * 2
    assert [row.group for row in found] == [FIT] * 4, "of two rows no fifth is held out"
    halves = {row.group for row in gemm_comparisons(replace(table, gpu="GB300")) if row.operation in (LONG, LAYERED)}
    assert halves == {FIT, HELD_OUT}, "half of the pairs of N and K"
    assert looped[0] < alone[0] and looped[1] == alone[1]
