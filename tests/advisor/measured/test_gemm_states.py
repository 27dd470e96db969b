"""GEMMs by how they are timed, kernels of one tile: the shipped tables within their error, and wrong rows."""

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from itertools import combinations
from math import prod
from operator import itemgetter
from pathlib import Path
from statistics import median

import pytest

from magus.advisor import measured
from magus.advisor.measured.tables.csv_rows import TableComparison, read_rows
from magus.advisor.measured.tables.gemm import gpu_named
from magus.advisor.measured.tables.implementations import (
    STATES,
    STATES_OPERATION,
    TILES_OPERATION,
    own_comparisons,
    shipped_comparisons,
)
from magus.compiler.ir import DType, GemmShape
from magus.simcore.kernels.gemm import gemm_work

STATE = "gpu,m,n,k,dtype,state,time_us\nH100,4096,4096,4096,bf16,burst,175.6\n"
TILE = (
    "gpu,m,n,k,dtype,tile_m,tile_n,sms,waits,time_us,library_us\nH100,1024,3584,8192,bf16,128,256,132,none,93.43,91.3\n"
)


def rows_of(name: str) -> Sequence[Mapping[str, str]]:
    """The rows of a shipped table."""
    with as_file(files(measured) / "rows" / name) as path:
        return read_rows(path, ("gpu",), ("time_us",)).rows


def shape_of(row: Mapping[str, str]) -> tuple[str, ...]:
    """The sizes of a row, m, n and k."""
    return row["m"], row["n"], row["k"]


def errors_of(operation: str) -> dict[str, list[float]]:
    """Relative errors of the rows of an operation, by group."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in shipped_comparisons():
        if isinstance(row, TableComparison) and row.operation == operation:
            found[row.group].append(row.predicted_us / row.measured_us - 1)
    return found


def test_the_form_is_that_of_a_graph_and_of_a_gpu_that_rests() -> None:
    errors = errors_of(STATES_OPERATION)

    assert {group: len(found) for group, found in errors.items()} == {
        STATES["kernel"]: 28,
        STATES["graph"]: 28,
        STATES["cold"]: 28,
        STATES["burst"]: 14,
        STATES["sustained"]: 14,
    }
    assert median(map(abs, errors[STATES["graph"]])) < 0.06
    assert max(map(abs, errors[STATES["burst"]])) < 0.04
    assert -0.16 < min(errors[STATES["sustained"]]) < max(errors[STATES["sustained"]]) < -0.02


def test_a_kernel_of_one_tile_is_met_on_all_sms() -> None:
    errors = errors_of(TILES_OPERATION)
    on_all, on_fewer = ("waits for nothing, all SMs", "waits for nothing, fewer SMs")

    assert (len(errors[on_all]), len(errors[on_fewer])) == (104, 78)
    assert median(map(abs, errors[on_all])) < 0.06
    # At the power limit fewer SMs run at a higher clock, which the form does not have.
    assert 0.05 < median(errors[on_fewer]) < 0.11


def test_tiles_are_as_far_apart_as_was_measured() -> None:
    """On all SMs: which of two tiles is faster where times differ by more than the profile resolves, and the pick."""
    _, gpu = gpu_named("H100")
    assert gpu is not None
    times: dict[tuple[str, ...], list[tuple[float, int]]] = defaultdict(list)
    for row in rows_of("gemm_tiles_h100.csv"):
        if row["sms"] == "132" and row["waits"] == "none":
            m, n, k = (int(row[name]) for name in "mnk")
            shape = GemmShape(m, n, k, DType.BF16)
            tile = int(row["tile_m"]), int(row["tile_n"])
            predicted = gemm_work(gpu, shape, 132, static_order=True, tile=tile).alone_ticks
            times[shape_of(row)].append((float(row["time_us"]), predicted))
    apart = [
        ((one[0] - other[0]) * (one[1] - other[1]) > 0)
        for kernels in times.values()
        for one, other in combinations(kernels, 2)
        if abs(math.log(one[1] / other[1])) > math.log(1.08)
    ]
    lost = [min(kernels, key=itemgetter(1))[0] / min(kernels)[0] for kernels in times.values()]

    assert len(times) == 26 and len(apart) > 60
    assert sum(apart) / len(apart) > 0.95
    assert sum(each == 1 for each in lost) >= 19 and max(lost) < 1.25


def test_what_is_said_of_the_rows_follows_from_them() -> None:
    """The figures of a note of the report."""
    states, tiles = rows_of("gemm_states_h100.csv"), rows_of("gemm_tiles_h100.csv")
    times = {(shape_of(row), row["state"]): float(row["time_us"]) for row in states}
    slower = [times[shape, "sustained"] / us for (shape, state), us in times.items() if state == "burst"]
    costs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in tiles:
        if row["sms"] == "132" and row["waits"] == "flags":
            costs[shape_of(row)].append(float(row["time_us"]) / float(row["library_us"]))
    large = [least for shape, (least,) in costs.items() if 2 * prod(map(int, shape)) >= 100e9]
    small = [least for shape, (least,) in costs.items() if 2 * prod(map(int, shape)) < 100e9]

    assert (round(min(slower), 2), round(max(slower), 2)) == (1.09, 1.17)
    assert (len(large), len(small)) == (15, 11)
    assert (round(median(large), 2), round(median(small), 2)) == (1.02, 1.11)


@pytest.mark.skipif("MAGUS_MEASURED_DATA" not in os.environ, reason="needs the measured tables")
def test_a_table_of_small_gemms_has_a_launch_in_it() -> None:
    rows = read_rows(Path(os.environ["MAGUS_MEASURED_DATA"]) / "gemm_misc.csv", ("gpu", "kernel"), ("time_us",)).rows
    theirs = {shape_of(row): float(row["time_us"]) for row in rows if row["kernel"] == "cuBLAS by XLA"}
    ours = {shape_of(row): float(row["time_us"]) for row in rows_of("gemm_states_h100.csv") if row["state"] == "graph"}
    small = [theirs[shape] - us for shape, us in ours.items() if shape in theirs and us < 100]

    assert len(small) == 27
    assert round(median(small), 1) == 2.8


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("H100", "H9000"), "no profile"),
        (("bf16", "int3"), "an element type that is not known"),
        (("burst", "asleep"), "a state of the GPU that is not known"),
        (("4096,bf16", "4096.5,bf16"), "not a whole number"),
        (("175.6", "-1"), "not a number above zero"),
    ],
)
def test_wrong_rows_of_times_are_named(tmp_path: Path, changed: tuple[str, str], reason: str) -> None:
    path = tmp_path / "gemm_states_one.csv"
    path.write_text(STATE.replace(*changed))

    (said,) = own_comparisons(path)

    assert isinstance(said, str)
    assert reason in said


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("H100", "H9000"), "no profile"),
        ((",132,", ",133,"), "more SMs than the GPU has"),
        (("none", "semaphores"), "a wait that is not known"),
        (("128,256", "128.5,256"), "a tile or number of SMs that is not a whole number"),
        (("91.3", "0"), "not a number above zero"),
    ],
)
def test_wrong_rows_of_tiles_are_named(tmp_path: Path, changed: tuple[str, str], reason: str) -> None:
    path = tmp_path / "gemm_tiles_one.csv"
    path.write_text(TILE.replace(*changed))

    (said,) = own_comparisons(path)

    assert isinstance(said, str)
    assert reason in said
