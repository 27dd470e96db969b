"""Kernels with copying SMs: time and number of SMs by simulation, and rows that are left out with their reason."""

from pathlib import Path

import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.fused import COUNTS, TIMES, sm_sweep_comparisons

HEADER = "gpu,n_gpus,pattern,m,n,k,shape_semantics,dtype,best_static_us,best_static_comm_sms,swept_comm_sms"
GATHERED = '{gpu},4,AG+GEMM,{m},1024,4096,"M global, N local, K",bf16,100.0,16,2 4 8 16 32'
SUMMED = 'H100-SXM,4,GEMM+RS,4096,4096,1024,"M, N global, K local",bf16,100.0,32,8 16 32 64'


def read(tmp_path: Path, *rows: str) -> list[TableComparison | str]:
    (tmp_path / "sm_sweep.csv").write_text("\n".join((HEADER, *rows)) + "\n")
    return list(sm_sweep_comparisons(tmp_path))


@pytest.mark.parametrize(
    ("row", "group", "least_us", "most_us", "least_sms", "most_sms"),
    [
        (GATHERED.format(gpu="H100-SXM", m=4096), "AG+GEMM", 130, 150, 8, 16),
        (SUMMED, "GEMM+RS", 100, 130, 16, 64),
    ],
)
def test_the_best_of_the_numbers_that_were_tried_is_found(
    tmp_path: Path, row: str, group: str, least_us: float, most_us: float, least_sms: int, most_sms: int
) -> None:
    time, count = read(tmp_path, row)

    assert isinstance(time, TableComparison) and isinstance(count, TableComparison)
    assert (time.operation, time.group, time.measured_us) == (TIMES, group, 100.0)
    assert least_us < time.predicted_us < most_us
    assert count.operation == COUNTS and least_sms <= count.predicted_us <= most_sms


def test_a_kernel_of_one_large_tile_ends_that_much_later_behind_its_last_rows(tmp_path: Path) -> None:
    """Of few rows: a tile of 128 x 256 takes twice as long as one of 128 x 128, and gathered rows come last."""
    (time, _) = read(tmp_path, GATHERED.format(gpu="H100-SXM", m=2048).replace("1024,4096", "512,2048"))

    assert isinstance(time, TableComparison)
    assert 44 < time.predicted_us < 62


def test_fewer_sms_that_can_be_tried_are_no_faster(tmp_path: Path) -> None:
    row = GATHERED.format(gpu="H100-SXM", m=4096)
    many, few = (read(tmp_path, each)[0] for each in (row, row.replace("2 4 8 16 32", "2 4")))

    assert isinstance(many, TableComparison) and isinstance(few, TableComparison)
    assert many.predicted_us < few.predicted_us


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (GATHERED.format(gpu="Z9", m=4096), "the GPU, the number of GPUs or the type is not known"),
        (GATHERED.format(gpu="H100-SXM", m=4096).replace("bf16", "int3"), "or the type is not known"),
        (GATHERED.format(gpu="H100-SXM", m=4096).replace("2 4 8 16 32", "many"), "SMs that are not stated"),
        (GATHERED.format(gpu="H100-SXM", m=4096).replace("AG+GEMM", "MoE dispatch+GEMM"), "no GEMM behind"),
        (GATHERED.format(gpu="H100-SXM", m=4097), "not simulated: "),
        (GATHERED.format(gpu="H100-SXM", m=4096).replace("100.0", "-1"), "best_static_us is '-1'"),
    ],
)
def test_other_rows_are_left_out_with_a_reason(tmp_path: Path, row: str, reason: str) -> None:
    (text,) = read(tmp_path, row)

    assert isinstance(text, str) and reason in text


def test_a_number_of_sms_that_the_gpu_has_not_is_not_simulated(tmp_path: Path) -> None:
    (text,) = read(tmp_path, GATHERED.format(gpu="H100-SXM", m=4096).replace("2 4 8 16 32", "132 500"))

    assert isinstance(text, str) and "not simulated" in text
