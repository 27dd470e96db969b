"""Tables of collectives and copies: what is compared, what is left out and why, and how far the models are off.

The accuracy itself needs measured tables: MAGUS_MEASURED_DATA names their folder.
"""

import gzip
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest

from magus.advisor.measured.calibrate.fitting import put_all
from magus.advisor.measured.calibrate.parts import RING, RING_SWITCH, collective_parts, collective_times_us, fit_rows
from magus.advisor.measured.tables.collectives import (
    MeasuredPoint,
    PhaseShare,
    collective_comparisons,
    collective_points,
    copy_comparisons,
    phase_shares,
    shipped_points,
)
from magus.advisor.measured.tables.csv_rows import MeasuredError, MissingTable, TableComparison
from magus.advisor.measured.tables.gemm import gpu_named
from magus.compiler.ir import Gpu
from magus.simcore.kernels.copy import CopyPhase
from magus.simcore.kernels.nccl import collective_time

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
measured = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")

NCCL_HEAD = "gpu,n_gpus,op,dtype,bytes,time_us,nccl_version_recorded"
DEEPEP_HEAD = "gpu,n_gpus,n_nodes,hidden,tokens_per_rank,topk,num_experts,dispatch_us,combine_sms,combine_us"
DMA_HEAD = "size_bytes,control_pct,schedule_pct,copy_pct,sync_pct"


def table(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def nccl(folder: Path, *rows: str) -> list[TableComparison | str]:
    table(folder, "nccl_collectives_here.csv", NCCL_HEAD, *rows)
    return list(collective_comparisons(folder))


def deepep(folder: Path, *rows: str) -> tuple[list[TableComparison], list[str]]:
    table(folder, "deepep_here.csv", DEEPEP_HEAD, *rows)
    return parted(copy_comparisons(folder))


def parted(found: object) -> tuple[list[TableComparison], list[str]]:
    everything = list(found)  # type: ignore[call-overload]
    texts = [each for each in everything if isinstance(each, str)]
    return [each for each in everything if isinstance(each, TableComparison)], texts


def test_repeats_of_a_point_count_as_their_median(tmp_path: Path) -> None:
    row = "H100-SXM-80GB,8,all_gather,half,1048576,{},2.29.2"
    found = nccl(tmp_path, *(row.format(us) for us in (30, 10, 20)))

    (only,) = found
    assert isinstance(only, TableComparison)
    assert (only.gpu, only.operation, only.group) == ("H100", "all_gather", ">= 1 MiB")
    assert only.label == "8 GPUs, 1,048,576 B, LL128" and only.measured_us == 20
    # 4.79 + 0.79 + 7 * 0.85 us, 7/8 MiB at 183.5 GB/s, 1/8 MiB at 693.5 GB/s
    assert only.predicted_us == pytest.approx(11.53 + 5.0 + 0.189, rel=1e-3)


def test_points_differ_by_gpu_operation_ranks_and_bytes(tmp_path: Path) -> None:
    rows = [
        f"{gpu},{ranks},{op},half,{size},9.5,2.29"
        for gpu in ("A100-SXM4-80GB", "B200-SXM")
        for ranks in (2, 8)
        for op in ("all_reduce", "alltoall")
        for size in (512, 2097152)
    ]
    found, texts = parted(nccl(tmp_path, *rows))

    assert len(found) == 16 and not texts
    assert {each.operation for each in found} == {"all_reduce", "all_to_all"}
    assert {each.group for each in found} == {"< 1 MiB", ">= 1 MiB"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,8,all_gather,int8,512,9,2.29", "half precision"),
        ("H100-SXM,8,broadcast,half,512,9,2.29", "no model of broadcast"),
        ("V100-SXM,8,all_gather,half,512,9,2.29", "no profile of V100"),
        ("H100-SXM,1,all_gather,half,512,9,2.29", "whole numbers from 2"),
        ("H100-SXM,8,all_gather,half,0.5,9,2.29", "whole numbers from 2"),
        ("H100-SXM,8,all_gather,half,1e30,9,2.29", "whole numbers from 2"),
        ("H100-SXM,8,all_gather,half,512,-9,2.29", "time_us"),
        ("H100-SXM,8,all_gather", "fields"),
    ],
)
def test_a_row_that_is_left_out_is_named_with_its_reason(tmp_path: Path, row: str, reason: str) -> None:
    found, texts = parted(nccl(tmp_path, row, "H100-SXM,8,all_gather,half,512,9,2.29"))

    assert len(found) == 1 and len(texts) == 1
    assert reason in texts[0] and texts[0].startswith("nccl_collectives_here.csv")


def test_a_gpu_without_collectives_has_no_constants(tmp_path: Path) -> None:
    nccl(tmp_path, "H100-SXM,8,all_gather,half,512,9,2.29")
    gpu = gpu_named("H100")[1]
    assert gpu is not None
    (text,) = collective_points(tmp_path, lambda _: replace(gpu, collectives=None))

    assert isinstance(text, str) and "H100 has no constants for all_gather" in text


def test_left_out_rows_of_one_reason_are_counted(tmp_path: Path) -> None:
    found, texts = parted(nccl(tmp_path, *["H100-SXM,8,all_gather,int8,512,9,2.29"] * 1200))

    assert not found
    assert texts == [
        "nccl_collectives_here.csv: 1,200 rows: int8: the constants are of half precision; all_reduce of others may "
        "not use NVLS"
    ]


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    text = f"{NCCL_HEAD}\nH100-SXM,8,all_gather,half,512,9,2.29\n"
    (tmp_path / "nccl_collectives_here.csv.gz").write_bytes(gzip.compress(text.encode()))

    assert len(list(collective_comparisons(tmp_path))) == 1


def test_all_reduces_of_rccl_in_a_graph_are_compared(tmp_path: Path) -> None:
    rows = ("8xMI300X,hip_graph_-G_1,1048576,19.4", "8xMI300X,no_graph,1048576,27.4", "8xMI300X,hip_graph_-G_1,8,16.4")
    unknown = ("8xMI9X,hip_graph_-G_1,1048576,19.4", "manyxMI300X,hip_graph_-G_1,1048576,19.4")
    table(tmp_path, "mi300x_allreduce_rccl_here.csv", "system,mode,size_bytes,oop_time_us", *rows, *unknown)
    found, texts = parted(nccl(tmp_path, "H100-SXM,8,all_gather,half,512,9,2.29"))

    assert [(each.gpu, each.operation, each.measured_us) for each in found[1:]] == [("MI300X", "all_reduce", 19.4)]
    # 2.45 + 0.73 + 14 * 0.379 us, 14/8 MiB at 172.1 GB/s, 1/8 MiB at 2.1 TB/s
    assert found[1].predicted_us == pytest.approx(8.486 + 10.662 + 0.062, rel=1e-3)
    assert [text.partition(": ")[2] for text in texts] == [
        "2 rows: not in a graph, or below 512 B: times of the host",
        "2 rows: the GPU, their number or the size is not known",
    ]


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="nccl_collectives"):
        list(collective_comparisons(tmp_path))
    with pytest.raises(MissingTable, match="deepep"):
        list(copy_comparisons(tmp_path))


def test_a_table_without_a_column_is_an_error(tmp_path: Path) -> None:
    table(tmp_path, "nccl_collectives_here.csv", "gpu,op", "H100,all_gather")
    with pytest.raises(MeasuredError, match="no column dtype"):
        list(collective_comparisons(tmp_path))


def test_a_table_of_dispatch_that_does_not_count_sms_is_left_out(tmp_path: Path) -> None:
    table(tmp_path, "deepep_low_latency.csv", "gpu,n_nodes,n_gpus,combine_us", "H100-SXM,1,8,20")
    table(tmp_path, "deepep_here.csv", DEEPEP_HEAD, "H100-SXM,8,1,7168,65536,8,8,1,4,90000")

    found = list(copy_comparisons(tmp_path))

    assert any(
        "deepep_low_latency.csv: no combines by number of SMs in its columns: hidden" in str(each) for each in found
    )
    assert any(isinstance(each, TableComparison) for each in found)


def test_a_combine_is_compared_by_its_remote_bytes(tmp_path: Path) -> None:
    # Top-8 of 8 experts on 8 GPUs: every token goes to all, 7 of 8 are remote; 65,536 x 7 x 7,168 x 2 B.
    found, texts = deepep(tmp_path, "H100-SXM,8,1,7168,65536,8,8,1,4,90000")

    (only,) = found
    assert (only.operation, only.group, only.measured_us) == ("SM copy", "4 SMs", 90000)
    assert only.label == "65,536 tokens of 7168, top-8 of 8"
    assert only.predicted_us == pytest.approx(65_536 * 7 * 7168 * 2 / 70e9 * 1e6, rel=1e-3)
    assert texts == ["deepep_here.csv: all times of dispatch: it converts to fp8 and scans tokens beside copying"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,8,1,7168,1024,8,256,1,4,90", "not the copying"),
        ("H100-SXM,8,1,2048,65536,8,256,1,4,90", "not the copying"),
        ("H100-SXM,8,1,7168,65536,2,256,1,4,90", "not the copying"),
        ("H100-SXM,8,2,7168,65536,8,256,1,4,90", "more than one node"),
        ("H100-SXM,8,1,7168,65536,8,250,1,4,90", "not spread evenly"),
        ("H100-SXM,8,1,7168,65536,16,8,1,4,90", "not spread evenly"),
        ("H100-SXM,1,1,7168,65536,8,256,1,4,90", "not spread evenly"),
        ("H100-SXM,8,1,7168,65536,8,256,1,133,90", "in the range of the model"),
        ("H100-SXM,8,1,7168,65536,8,1000000000,1,4,90", "in the range of the model"),
        ("H100-SXM,8,1,7168.5,65536,8,256,1,4,90", "in the range of the model"),
        ("MI300X,8,1,7168,65536,8,256,1,4,90", "no profile of MI300X"),
        ("H100-SXM,8,1,7168,65536,8,256,1,4,nan", "combine_us"),
    ],
)
def test_a_combine_that_is_left_out_is_named_with_its_reason(tmp_path: Path, row: str, reason: str) -> None:
    found, texts = deepep(tmp_path, row)

    assert not found and len(texts) == 2
    assert reason in texts[0]


def test_shares_of_the_phases_of_a_copy(tmp_path: Path) -> None:
    path = table(tmp_path, "mi300x_dma_copy_here.csv", DMA_HEAD, "1024,5,31,29,35", "67108864,0,0,100,0")
    shares = [each for each in phase_shares(path) if isinstance(each, PhaseShare)]
    found, texts = parted(copy_comparisons(tmp_path))

    assert sum(each.predicted for each in shares if each.num_bytes == 1024) == pytest.approx(100)
    assert [each.phase for each in shares[:4]] == list(CopyPhase)[1:]
    assert [(each.group, each.measured_us) for each in found] == [
        ("schedule", 31),
        ("copy", 29),
        ("sync", 35),
        ("copy", 100),
    ]
    assert texts == ["mi300x_dma_copy_here.csv: 4 shares below 10 %: rounded to whole percents"]


@pytest.mark.parametrize("row", ["1024,5,31,x,35", "1024,5,31,29,101", "0.5,5,31,29,35", "1024,-5,31,29,35"])
def test_shares_that_are_none_are_left_out(tmp_path: Path, row: str) -> None:
    table(tmp_path, "mi300x_dma_copy_here.csv", DMA_HEAD, row)
    found, texts = parted(copy_comparisons(tmp_path))

    assert not found and len(texts) == 1 and "shares from 0 to 100" in texts[0]


def mean_errors(found: list[TableComparison]) -> dict[tuple[str, str], float]:
    """Mean of |predicted / measured - 1| in percent, by GPU and operation."""
    errors = defaultdict(list)
    for each in found:
        errors[each.gpu, each.operation].append(100 * abs(each.predicted_us / each.measured_us - 1))
    return {key: sum(each) / len(each) for key, each in errors.items()}


@measured
def test_collectives_are_as_accurate_as_promised() -> None:
    found, _ = parted(collective_comparisons(Path(DATA)))
    limits = {"all_gather": 5.5, "reduce_scatter": 5.5, "all_reduce": 5.5, "all_to_all": 6.0}
    errors = mean_errors(found)

    nccl = {(gpu, operation) for gpu in ("A100", "H100", "B200") for operation in limits}
    assert set(errors) == nccl | {("MI300X", "all_reduce")}
    assert len(found) == 3 * 4 * 3 * 21 + 26  # GPUs, operations, ranks, sizes; sizes of RCCL
    assert not {key: error for key, error in errors.items() if error > limits[key[1]]}


@measured
@pytest.mark.slow
def test_the_error_of_rccl_is_that_of_sizes_left_out_of_the_fit() -> None:
    found = [each for each in shipped_points(Path(DATA)) if isinstance(each, MeasuredPoint) and each.gpu == "MI300X"]
    gpu, nccl = gpu_named("MI300X")[1], gpu_named("H100")[1]
    assert gpu is not None and gpu.collectives is not None and nccl is not None and nccl.collectives is not None
    own = {name: getattr(gpu.collectives, name) for name in ("own_bytes_per_s", "reduce_factor")}
    start = replace(gpu, collectives=replace(nccl.collectives, nvls=None, all_to_all=None, **own))
    constants = [each for each in RING if each.name not in ("own_bandwidth", "reduce_factor")]
    errors: list[float] = []
    for half in (0, 1):
        (part,) = collective_parts(start, found[half::2], fit_switch=False)
        trials = [
            put_all(trial, fit_rows(constants, collective_times_us, ((2, 5), (5, 8)), trial, trial, part.rows))
            for trial in (RING_SWITCH.put(start, Fraction(1 << power)) for power in range(15, 22))
        ]
        best = min(trials, key=lambda trial: mean(off(trial, found[half::2])))
        errors += off(best, found[1 - half :: 2])

    assert mean(errors) == pytest.approx(100 * float(gpu.collectives.error), abs=0.05)
    assert [median(errors), float(np.percentile(errors, 90))] == pytest.approx([2.7, 13.1], abs=0.05)


def off(gpu: Gpu, points: Sequence[MeasuredPoint]) -> list[float]:
    """How far times by ``gpu`` are from the measured ones, in percent."""
    times = [collective_time(gpu, each.operation, each.num_bytes, each.ranks).us for each in points]
    return [100 * abs(time / each.time_us - 1) for time, each in zip(times, points, strict=True)]


@measured
def test_copies_by_sms_are_as_accurate_as_promised() -> None:
    errors = mean_errors([each for each in parted(copy_comparisons(Path(DATA)))[0] if each.operation == "SM copy"])

    assert set(errors) == {("H100", "SM copy"), ("B200", "SM copy")}
    assert max(errors.values()) <= 10


@measured
def test_phases_of_copies_are_as_accurate_as_promised() -> None:
    paths = Path(DATA).glob("mi300x_dma_copy_*.csv*")
    shares = [each for each in chain(*map(phase_shares, paths)) if isinstance(each, PhaseShare)]

    assert len(shares) == 4 * 17
    assert max(abs(each.measured - each.predicted) for each in shares) <= 5
