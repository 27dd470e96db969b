"""Measured GEMMs beside copies within the memory of one GPU against ``simcore/kernels/copy.py``.

The table ships with Magus (``advisor/measured/rows``), and says at its top how it was measured.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ....compiler.ir import DType, GemmShape, Gpu
from ....simcore.kernels.copy import slowdown_beside_copies
from .collectives import gpu_named, whole_number
from .csv_rows import TableComparison, comparisons_in

OPERATION = "GEMM beside copies"
ENGINES = {"ce": "copy engines", "sm": "SMs"}
NUMBERS = ("m", "n", "k", "copied_gb_s", "alone_us", "beside_us")
MAX_SIZE = 1 << 24
MAX_SATURATED = 0.6
"""Copies alone that take more of memory than this are left out: the rest of it is too little to be told apart."""


def beside_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table, grouped by what copies and by half, or why rows were left out.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    yield from comparisons_in(path, ("gpu", "dtype", "beside", "copy_sms", "half"), NUMBERS, _comparison)


def _comparison(row: Mapping[str, str]) -> TableComparison | str:
    _, gpu = gpu_named(row["gpu"])
    sizes = [whole_number(row, name, MAX_SIZE) for name in "mnk"]
    if gpu is None or row["beside"] not in ENGINES or row["dtype"] not in {each.value for each in DType}:
        return "no profile of the GPU, or an engine or element type that is not known"
    if None in sizes or not row["copy_sms"].isdecimal() or int(row["copy_sms"]) >= gpu.sms:
        return "a size or number of SMs that is not a whole number in the range of the model"
    m, n, k = (size for size in sizes if size is not None)
    shape, bytes_per_s = GemmShape(m, n, k, DType(row["dtype"])), float(row["copied_gb_s"]) * 1e9
    if 2 * bytes_per_s > MAX_SATURATED * gpu.hbm.achieved_bytes_per_s:
        return f"copies that take more than {MAX_SATURATED:.0%} of memory"
    slower = slowdown_beside_copies(gpu, shape, gpu.sms - int(row["copy_sms"]), bytes_per_s)
    label = f"{m} x {n} x {k} beside {row['copied_gb_s']} GB/s"
    alone_us = float(row["alone_us"])
    return TableComparison(
        gpu.name, OPERATION, _group(gpu, shape, row), label, float(row["beside_us"]), alone_us * slower
    )


def _group(gpu: Gpu, shape: GemmShape, row: Mapping[str, str]) -> str:
    """What copies, and which half; GEMMs that memory limits are a group of their own."""
    by = f"by {ENGINES[row['beside']]}"
    intensity = shape.flops / (shape.operand_bytes + shape.output_bytes)
    if intensity * gpu.hbm.achieved_bytes_per_s < gpu.peak(shape.dtype):
        return f"{by}, limited by memory"
    return f"{by}, {row['half']}"
