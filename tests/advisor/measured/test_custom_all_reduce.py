"""Custom all_reduces of frameworks: which kernel a row is of, what is left out, and where kernels cross."""

import os
from pathlib import Path

import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison
from magus.advisor.measured.tables.custom_all_reduce import (
    GETS,
    KIB,
    OPERATION,
    PUTS,
    TWO_SHOT,
    custom_comparisons,
    simulated_us,
)
from magus.advisor.measured.validate.report import summed_up

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
HEADER = "gpu,n_gpus,framework,framework_version,mode,dtype,bytes,latency_us,busbw_gbs,repeat"


def read(folder: Path, *rows: str) -> tuple[list[TableComparison], list[str]]:
    (folder / "custom_all_reduce.csv").write_text("\n".join([HEADER, *(f"{row},1,0" for row in rows), ""]))
    found = list(custom_comparisons(folder))
    return [each for each in found if isinstance(each, TableComparison)], [e for e in found if isinstance(e, str)]


@pytest.mark.parametrize(
    ("row", "kernel"),
    [
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,131072,7.86", GETS),
        ("H100-SXM,8,sglang,0.5.10,graph,bf16,131072,8.1", GETS),
        ("H100-SXM,8,sglang,0.5.14,graph,bf16,131072,6.4", PUTS),
        ("H100-SXM,4,trtllm,1.3.0rc20,graph,bf16,262144,5.5", PUTS),
        ("H100-SXM,8,vllm,0.14.0,graph,bf16,262144,14.7", TWO_SHOT),
        ("H100-SXM,4,sglang,0.5.9,graph,bf16,524288,11.4", TWO_SHOT),
        ("H100-SXM,2,vllm,0.14.0,graph,bf16,1048576,8.4", GETS),
    ],
)
def test_the_kernel_follows_from_framework_and_size(tmp_path: Path, row: str, kernel: str) -> None:
    (only,), texts = read(tmp_path, row)
    _, ranks, *_ = row.split(",")

    assert texts == [] and (only.gpu, only.operation, only.group) == ("H100", OPERATION, kernel)
    assert only.predicted_us == simulated_us("H100", kernel, int(ranks), int(row.split(",")[6]))
    assert only.label.startswith(f"{ranks} GPUs")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,8,vllm,0.24.0,eager,bf16,131072,20", "no part of a graph"),
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,262144,10.8", "kernel is not known"),
        ("H100-SXM,8,trtllm,1.0,graph,bf16,524288,17.6", "kernel is not known"),
        ("H100-SXM,8,other,1.0,graph,bf16,1024,3", "kernel is not known"),
        ("H100-SXM,2,vllm,0.14.0,graph,bf16,4194304,20", "kernel is not known"),
        ("H100-SXM,3,vllm,0.14.0,graph,bf16,4096,5", "2, 4 or 8 GPUs"),
        ("H100-SXM,8,vllm,0.14.0,graph,fp32,4096,5", "not bf16"),
        ("H100-SXM,8,vllm,0.14.0,graph,bf16,512,4", "below 1,024 B"),
        ("X9,8,vllm,0.14.0,graph,bf16,4096,5", "no profile of X9"),
        ("H100-SXM,8,vllm,0.14.0,graph,bf16,4096,-5", "not a number above zero"),
    ],
)
def test_what_is_left_out_is_reported(tmp_path: Path, row: str, reason: str) -> None:
    found, (text,) = read(tmp_path, row)

    assert found == [] and reason in text


def test_repeats_and_versions_of_a_kernel_count_as_their_median(tmp_path: Path) -> None:
    rows = [
        f"H100-SXM,8,vllm,{version},graph,bf16,8192,{us}" for version, us in (("0.14.0", 4), ("0.19.0", 9), ("1", 5))
    ]

    (only,), _ = read(tmp_path, *rows)
    assert only.measured_us == 5


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
def test_kernels_cross_where_they_were_measured_to() -> None:
    rows = [each for each in custom_comparisons(Path(DATA)) if isinstance(each, TableComparison)]
    errors = {(each.gpu, each.group): each.mape for each in summed_up(rows)}

    assert errors["H100", PUTS] < 35 and errors["H100", GETS] < 40 and errors["H100", TWO_SHOT] < 15
    assert errors["A100", PUTS] < 20 and errors["A100", GETS] < 20 and errors["A100", TWO_SHOT] < 15
    of_h100 = {(each.group, each.label): each for each in rows if each.gpu == "H100"}
    small, large = (of_h100[PUTS, f"8 GPUs, {size:,} B"] for size in (8 * KIB, 128 * KIB))
    two_shot = of_h100[TWO_SHOT, f"8 GPUs, {256 * KIB:,} B"]
    for one in (small, large):
        assert one.predicted_us == pytest.approx(one.measured_us, rel=0.25)
    assert large.measured_us < two_shot.measured_us and large.predicted_us < two_shot.predicted_us
    assert simulated_us("H100", PUTS, 8, 512 * KIB) > simulated_us("H100", TWO_SHOT, 8, 512 * KIB)
