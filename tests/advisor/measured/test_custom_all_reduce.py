"""Small all_reduces of frameworks: what a row is compared with, what is left out, and that the constants are the fit's.

The fit is linear: a start, a step for each peer and the bytes that count, in relative errors, large ones weighing less.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest

from magus.advisor.measured.tables.csv_rows import TableComparison, read_rows
from magus.advisor.measured.tables.custom_all_reduce import (
    FIT,
    LIBRARY,
    OTHER_GPU,
    SIZES,
    STANDS_FOR,
    VERSION,
    VERSIONS,
    KernelRow,
    custom_comparisons,
    kernel_rows,
)
from magus.advisor.measured.tables.gemm import gpu_name
from magus.advisor.measured.tables.samples import collective_on
from magus.compiler.ir import TICKS_PER_US, Method, Pattern, SumForm, SumKernel, percentile
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from magus.simcore.kernels.nccl import NcclCollective, collective_time
from tests.helpers.some import some

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
HEADER = "gpu,n_gpus,framework,framework_version,mode,dtype,bytes,latency_us,busbw_gbs,repeat"
measured = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")


def read(folder: Path, *rows: str) -> tuple[list[TableComparison], list[str]]:
    (folder / "custom_all_reduce.csv").write_text("\n".join([HEADER, *(f"{row},1,0" for row in rows), ""]))
    found = list(custom_comparisons(folder))
    return [each for each in found if isinstance(each, TableComparison)], [e for e in found if isinstance(e, str)]


@pytest.mark.parametrize(
    ("row", "implementation", "group"),
    [
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,131072,7.86", "vllm_all_reduce", FIT),
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,262144,10.8", "vllm_all_reduce", SIZES),
        ("H100-SXM,8,vllm,0.19.0,graph,bf16,131072,7.8", "vllm_all_reduce", VERSION),
        ("B200-SXM,4,trtllm,1.3.0rc20,graph,bf16,65536,5.4", "trtllm_all_reduce_blackwell", FIT),
        ("GB300,4,sglang,0.5.14,graph,bf16,65536,4.1", "sglang_all_reduce_blackwell", OTHER_GPU),
        ("H100-SXM,8,trtllm,1.3.0rc20,graph,bf16,1048576,26", "trtllm_all_reduce", LIBRARY),
        ("A100-SXM-80GB,2,sglang,0.5.9,graph,bf16,1048576,10.7", "sglang_all_reduce_ampere", VERSION),
    ],
)
def test_a_row_is_compared_with_the_implementation_for_its_gpu(
    tmp_path: Path, row: str, implementation: str, group: str
) -> None:
    (only,), texts = read(tmp_path, row)

    assert texts == [] and (only.operation, only.group) == (implementation, group)
    assert only.predicted_us == pytest.approx(only.measured_us, rel=0.25)
    assert only.gpu == row.partition(",")[0].partition("-")[0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("H100-SXM,8,vllm,0.24.0,eager,bf16,131072,20", "no part of a graph"),
        ("H100-SXM,8,vllm,0.14.0,graph,bf16,262144,14.7", "whose kernels no implementation has"),
        (
            "H100-SXM,8,other,1.0,graph,bf16,1024,3",
            "1 row: 'other' is none of the frameworks that are compared: sglang,",
        ),
        ("H100-SXM,3,vllm,0.24.0,graph,bf16,6144,5", "whose kernels no implementation has"),
        ("H100-SXM,8,vllm,0.24.0,graph,fp32,4096,5", "not bf16"),
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,512,4", "below 1,024 B"),
        ("X9,8,vllm,0.24.0,graph,bf16,4096,5", "no profile of X9"),
        ("H100-SXM,8,vllm,0.24.0,graph,bf16,4096,-5", "not a number above zero"),
    ],
)
def test_what_is_left_out_is_reported(tmp_path: Path, row: str, reason: str) -> None:
    found, (text,) = read(tmp_path, row)

    assert found == [] and reason in text


def measured_rows() -> Iterator[KernelRow]:
    yield from (row for row in kernel_rows(Path(DATA)) if isinstance(row, KernelRow))


def kernel_of(row: KernelRow) -> SumKernel:
    assert row.machine.collectives is not None
    return next(each for each in row.machine.collectives.kernels if row.num_bytes < each.below_bytes(row.ranks))


def method_of(name: str, gpu: str) -> Method:
    shipped = shipped_implementations(collective_on(gpu, 8).system)
    method = next(each for each in shipped if each.name == name).method(Pattern.GEMM_AR)
    assert method is not None
    return method


def refitted(form: SumForm, rows: Sequence[KernelRow]) -> tuple[float, float, float]:
    """Start and step in us, and GB/s, of a kernel."""
    peers = np.array([row.ranks - 1.0 for row in rows])
    sizes = np.array([row.num_bytes / 1e3 for row in rows])
    counted = {SumForm.ONE_SHOT: peers, SumForm.TWO_SHOT: 2 * peers / (peers + 1)}.get(form, np.ones(len(rows)))
    columns = [np.ones(len(rows)), counted * sizes]
    columns += [peers] if form is not SumForm.IN_SWITCH and len(set(peers)) > 1 else []
    assert len(rows) >= len(columns), "a constant needs a row"
    shares = np.array(columns).T / np.array([[row.us] for row in rows])
    weights, found = np.ones(len(rows)), np.zeros(len(columns))
    for _ in range(50):
        found = np.linalg.lstsq(shares * weights[:, None], weights, rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(np.abs(shares @ found - 1), 0.02))
    return found[0], found[2] if len(columns) > 2 else 0.0, 1 / found[1]


@measured
def test_the_shipped_constants_are_those_of_the_fit() -> None:
    rows = defaultdict[tuple[str, SumForm], list[KernelRow]](list)
    for row in measured_rows():
        if row.group == FIT:
            rows[row.implementation, kernel_of(row).form].append(row)

    assert {name for name, _ in rows} == set(VERSIONS)
    for (name, form), of_kernel in rows.items():
        if (name, form) == ("vllm_all_reduce_blackwell", SumForm.TWO_SHOT):
            continue  # its rate is assumed: three rows do not tell it
        shipped = next(each for each in method_of(name, of_kernel[0].gpu).kernels if each.form is form)
        constants = (shipped.start_ticks / TICKS_PER_US, shipped.step_ticks / TICKS_PER_US, shipped.bytes_per_s / 1e9)
        assert constants == pytest.approx(refitted(form, of_kernel), rel=0.006), (name, form)


def library_us_of(folder: Path) -> dict[tuple[str, int, int], float]:
    """Median times of the library's all_reduce by GPU, ranks and bytes."""
    times = defaultdict[tuple[str, int, int], list[float]](list)
    for name in ("nccl_collectives_a100_h100_b200.csv.gz", "nccl_more.csv.gz"):
        for row in read_rows(folder / name, ("gpu", "op", "dtype"), ("n_gpus", "bytes", "time_us")).rows:
            if (row["op"], row["dtype"]) == ("all_reduce", "half"):
                times[gpu_name(row["gpu"]), int(row["n_gpus"]), int(row["bytes"])].append(float(row["time_us"]))
    return {at: median(found) for at, found in times.items()}


@measured
def test_from_the_size_on_at_which_a_framework_stops_times_are_those_of_the_library() -> None:
    errors = defaultdict[str, list[float]](list)
    for row in measured_rows():
        if row.group == LIBRARY:
            errors[row.implementation].append(abs(row.predicted_us / row.us - 1))

    assert set(errors) == set(VERSIONS) and all(mean(found) < 0.07 for found in errors.values())


@measured
def test_the_stated_errors_are_those_of_rows_that_nothing_was_fitted_to() -> None:
    library = library_us_of(Path(DATA))
    errors, gpus = defaultdict[str, list[float]](list), dict[str, str]()
    for row in measured_rows():
        gpu = STANDS_FOR.get(row.gpu, row.gpu)
        at = row.gpu, row.ranks, row.num_bytes
        if row.group in (FIT, LIBRARY) or at not in library:
            continue
        assert row.machine.collectives is not None
        alone = replace(row.machine, collectives=replace(row.machine.collectives, kernels=()))
        predicted_us = collective_time(alone, NcclCollective.ALL_REDUCE, row.num_bytes, row.ranks).us
        gpus[row.implementation] = gpu
        errors[row.implementation].append(abs(predicted_us / row.predicted_us / (library[at] / row.us) - 1))

    for name, found in some(errors.items()):
        stated = method_of(name, gpus[name]).error
        assert stated is not None and float(stated) == pytest.approx(percentile(found, 90), rel=0.01), name
