"""Errors of GEMMs and collectives that profiles state are those of rows left out of the fits: the tables say so again.

Each rule here says which rows a fit had. A constant that is fitted to more of them makes the stated error too small.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from magus.advisor.measured.calibrate.fitting import put_all
from magus.advisor.measured.calibrate.parts import (
    GEMM_PARTS,
    FittedRow,
    ProfilePart,
    collective_parts,
    fit_gemm,
    gemm_constants,
    gemm_parts,
    parted,
)
from magus.advisor.measured.tables.collectives import MeasuredPoint, shipped_points
from magus.advisor.measured.tables.csv_rows import in_odd_half, read_rows
from magus.advisor.measured.tables.gemm import (
    FIT_SEED,
    OF_FIFTHS,
    GemmTable,
    gemm_tables,
    gpu_name,
    left_out_of_fits,
    profile_of,
)
from magus.compiler.ir import DType, Gpu
from tests.helpers.marks import first
from tests.helpers.some import some

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
measured = pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
TUNED, TUNED_GPU, SIBLING = "gemm_mi300x_mi355x_aiter.csv.gz", "MI355X", "MI300X"
SAMPLE, DRAWS, LARGE, PARTS = 3000, 5, 512, 8

Shape = tuple[int, int, int]
Held = Callable[[Shape], bool]


def shipped(name: str) -> Gpu:
    gpu = profile_of(name)
    assert gpu is not None
    return gpu


def shape_of(row: FittedRow) -> Shape:
    m, n, k = (int(size) for size in row.key)
    return m, n, k


def in_other_half(shape: Shape) -> bool:
    """Whether the pair of N and K is in the half that no fit had."""
    return in_odd_half(f"{shape[1]}/{shape[2]}")


@cache
def tables() -> Mapping[tuple[str, DType], GemmTable]:
    """All tables of GEMMs, that of the tuned kernels with the fastest of each shape."""
    found = [each for each in gemm_tables(Path(DATA)) if isinstance(each, GemmTable)]
    times = defaultdict[Shape, list[float]](list)
    for row in read_rows(Path(DATA) / TUNED, ("gpu", "dtype"), ("m", "n", "k", "time_us")).rows:
        if (gpu_name(row["gpu"]), row["dtype"]) == (TUNED_GPU, "bfloat16"):
            times[int(row["m"]), int(row["n"]), int(row["k"])].append(float(row["time_us"]))
    tuned = GemmTable(TUNED_GPU, {shape: min(each) for shape, each in times.items()}, TUNED)
    return {(each.gpu, each.dtype): each for each in (*found, tuned)}


def part_of(gpu: str, dtype: DType) -> ProfilePart:
    parts = gemm_parts(shipped(gpu), [tables()[gpu, dtype]])
    return next(part for part in parts if part.name == GEMM_PARTS[dtype])


def may_be_in_ratios(gpu: str, dtype: DType) -> Held:
    """Which shapes no constant was fitted to; of 3,000 rows those that were not drawn are such, held out or not."""
    rows, _ = parted(part_of(gpu, dtype).rows, SAMPLE, FIT_SEED)
    fitted = {shape_of(row) for row in rows}
    return lambda shape: shape not in fitted and (dtype is not DType.BF16 or in_other_half(shape))


def errors_of(gpu: Gpu, part: ProfilePart, rows: Sequence[FittedRow]) -> list[float]:
    """How far times by ``gpu`` are from the measured ones, in percent."""
    times = np.array([row.measured for row in rows])
    return [100 * abs(ratio - 1) for ratio in (part.predict(gpu, rows) / times).tolist()]


def ratios_off(gpu: Gpu, part: ProfilePart, is_held: Held) -> Iterator[float]:
    """How far ratios of the time of eight equal parts to that of the whole are off, in percent."""
    times = dict(zip(map(shape_of, part.rows), part.predict(gpu, part.rows).tolist(), strict=True))
    measured_us = {shape_of(row): row.measured for row in part.rows}
    for (m, n, k), us in measured_us.items():
        if min(m, n, k) < LARGE or not is_held((m, n, k)):
            continue
        for axis, size in enumerate((m, n, k)):
            rows, cols, inner = (each // PARTS if place == axis else each for place, each in enumerate((m, n, k)))
            cut = rows, cols, inner
            if size % PARTS == 0 and cut in measured_us and is_held(cut):
                yield 100 * abs(times[cut] / times[m, n, k] / (measured_us[cut] / us) - 1)


GEMMS = [
    *(("A100", DType.BF16), ("H100", DType.BF16), ("B200", DType.BF16), ("GB300", DType.BF16), (TUNED_GPU, DType.BF16)),
    *((gpu, DType.FP8) for gpu in ("H100", "B200", "GB300")),
    *((gpu, DType.FP8_BLOCK) for gpu in ("H100", "B200", "GB300")),
    *((gpu, DType.NVFP4) for gpu in ("B200", "GB300")),
]


@measured
@pytest.mark.parametrize("of", first(GEMMS, 1), ids=lambda of: f"{of[0]} {of[1].value}")
def test_the_stated_error_of_gemms_is_that_of_shapes_left_out_of_the_fit(of: tuple[str, DType]) -> None:
    name, dtype = of
    gpu, part = shipped(name), part_of(name, dtype)
    left_out = left_out_of_fits(tables()[of])
    held = [row for row in part.rows if row.first and row.key in left_out]

    assert len(held) > 100
    assert mean(errors_of(gpu, part, held)) == pytest.approx(100 * float(gpu.gemm.of(dtype).error), abs=0.06)


@measured
@pytest.mark.slow
@pytest.mark.parametrize("of", [each for each in GEMMS if each in OF_FIFTHS], ids=lambda of: f"{of[0]} {of[1].value}")
def test_the_stated_resolution_is_the_error_of_ratios_of_such_shapes(of: tuple[str, DType]) -> None:
    name, dtype = of
    gpu, part = shipped(name), part_of(name, dtype)
    found = list(ratios_off(gpu, part, may_be_in_ratios(name, dtype)))

    assert len(found) > 100
    assert mean(found) == pytest.approx(100 * float(gpu.gemm.of(dtype).resolution), abs=0.2)


@measured
def test_the_fifth_that_is_held_out_is_that_of_a_calibration() -> None:
    part, table = part_of("A100", DType.BF16), tables()["A100", DType.BF16]
    rows, held = parted(part.rows, SAMPLE, FIT_SEED)
    left_out = left_out_of_fits(table)

    assert left_out == {row.key for row in held if in_other_half(shape_of(row))} and len(left_out) > 800
    assert not left_out & {row.key for row in rows}


@measured
@pytest.mark.slow
def test_constants_of_tuned_kernels_are_fitted_to_other_rows() -> None:
    gpu, part = shipped(TUNED_GPU), part_of(TUNED_GPU, DType.BF16)
    fitted = fit_gemm(DType.BF16, gpu, shipped(SIBLING), [row for row in part.rows if not in_other_half(shape_of(row))])

    for each, constant in some(list(zip(fitted, gemm_constants(DType.BF16, gpu), strict=True))):
        assert each.undetermined or float(each.value) == pytest.approx(constant.of(gpu), rel=0.01), constant.path


@measured
@pytest.mark.slow
@pytest.mark.parametrize(("name", "sibling"), [("A100", "H100"), ("H100", "B200"), ("B200", "H100")])
def test_the_stated_error_of_nccl_is_that_of_fifths_left_out_of_fits(name: str, sibling: str) -> None:
    """The largest of the rings, each fit from the constants of another GPU."""
    gpu = shipped(name)
    points = [each for each in shipped_points(Path(DATA)) if isinstance(each, MeasuredPoint) and each.gpu == name]
    (rings,) = [part for part in collective_parts(gpu, points, fit_switch=False) if part.name == "rings"]
    errors = defaultdict[str, list[float]](list)
    for seed in range(DRAWS):
        rows, held = parted(rings.rows, len(rings.rows), seed)
        fitted = put_all(gpu, rings.fit(gpu, shipped(sibling), rows))
        for row, error in zip(held, errors_of(fitted, rings, held), strict=True):
            errors[row.group].append(error)

    assert gpu.collectives is not None
    largest = max(mean(found) for found in some(errors.values()))
    assert largest == pytest.approx(100 * float(gpu.collectives.error), abs=0.06)
