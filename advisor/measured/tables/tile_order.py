"""Measured bytes that a GEMM reads from memory, by the order of its tiles, against ``simcore/kernels/working_set.py``.

The table ships with Magus (``advisor/measured/rows``), and says at its top how it was measured.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ....compiler.ir import DType, GemmShape
from ....simcore.kernels.working_set import extra_hbm_bytes
from .collectives import gpu_named, whole_number
from .csv_rows import TableComparison, comparisons_in

OPERATION = "GEMM reads by tile order"
NUMBERS = ("m", "n", "k", "tile_m", "tile_n", "order", "read_bytes")
MAX_SIZE = 1 << 24


def order_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table, or why rows were left out; "times" are bytes over reading each operand once.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    yield from comparisons_in(path, ("gpu", "dtype"), NUMBERS, _comparison)


def _comparison(row: Mapping[str, str]) -> TableComparison | str:
    _, gpu = gpu_named(row["gpu"])
    if gpu is None or row["dtype"] not in {each.value for each in DType}:
        return "no profile of the GPU, or an element type that is not known"
    sizes = [whole_number(row, name, MAX_SIZE) for name in NUMBERS[:-1]]
    if None in sizes:
        return "a size that is not a whole number in the range of the model"
    m, n, k, tile_m, tile_n, order = (size for size in sizes if size is not None)
    shape = GemmShape(m, n, k, DType(row["dtype"]))
    extra = extra_hbm_bytes(shape, (tile_m, tile_n), gpu.sms, gpu.l2.size_bytes, gpu.l2.instances, order)
    once = shape.operand_bytes
    label = f"{m} x {n} x {k} in tiles of {tile_m} x {tile_n}, {order} rows together"
    return TableComparison(gpu.name, OPERATION, "all", label, float(row["read_bytes"]) / once, 1 + extra / once)
