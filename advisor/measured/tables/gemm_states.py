"""Measured GEMMs by how they are timed, by kernels of one tile, and by what they read, against the GEMM form.

Whose microseconds a table of small GEMMs has in it, what clock a table of large ones was measured at, what a kernel of
its own costs beside the library's, and what the order of tiles reads (``working_set.py``). The tables ship with Magus
(``advisor/measured/rows``), and say at their top how they were measured. No constant is fitted to them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ....compiler.ir import TICKS_PER_US, DType, GemmShape, Gpu
from ....simcore.kernels.gemm import gemm_work
from ....simcore.kernels.working_set import extra_hbm_bytes
from .collectives import gpu_named, whole_number
from .csv_rows import TableComparison, comparisons_in

STATES_OPERATION = "GEMM by how it is timed"
STATES: Mapping[str, str] = {
    "kernel": "small: the kernel alone",
    "graph": "small: in a graph",
    "cold": "small: in a graph, operands from memory",
    "burst": "large: after a rest",
    "sustained": "large: at the power limit",
}
TILES_OPERATION = "GEMM of one tile over the library's"
WAITS: Mapping[str, str] = {"none": "waits for nothing", "flags": "looks at a flag before each tile"}
ORDER_OPERATION = "GEMM reads by tile order"
MAX_SIZE = 1 << 24


def state_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of times, grouped by state, or why rows were left out.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    yield from comparisons_in(path, ("gpu", "dtype", "state"), ("m", "n", "k", "time_us"), _state)


def tile_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of kernels of one tile; "times" are those over the library's kernel.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    numbers = ("m", "n", "k", "tile_m", "tile_n", "sms", "time_us", "library_us")
    yield from comparisons_in(path, ("gpu", "dtype", "waits"), numbers, _tile)


def order_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of bytes read; "times" are bytes over reading each operand once.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    numbers = ("m", "n", "k", "tile_m", "tile_n", "order", "read_bytes")
    yield from comparisons_in(path, ("gpu", "dtype"), numbers, _order)


def _state(row: Mapping[str, str]) -> TableComparison | str:
    found = _gemm(row)
    if isinstance(found, str):
        return found
    gpu, shape = found
    if row["state"] not in STATES:
        return "a state of the GPU that is not known"
    label = f"{shape.m} x {shape.n} x {shape.k}, {row['state']}"
    us = gemm_work(gpu, shape, gpu.sms).alone_ticks / TICKS_PER_US
    return TableComparison(gpu.name, STATES_OPERATION, STATES[row["state"]], label, float(row["time_us"]), us)


def _tile(row: Mapping[str, str]) -> TableComparison | str:
    found = _gemm(row)
    sizes = [whole_number(row, name, MAX_SIZE) for name in ("tile_m", "tile_n", "sms")]
    if isinstance(found, str) or None in sizes:
        return found if isinstance(found, str) else "a tile or number of SMs that is not a whole number"
    gpu, shape = found
    tile_m, tile_n, sms = (size for size in sizes if size is not None)
    if sms > gpu.sms or row["waits"] not in WAITS:
        return "more SMs than the GPU has, or a wait that is not known"
    own = replace(gpu, gemm=replace(gpu.gemm.of(shape.dtype), tiles=((tile_m, tile_n),), pair_tiles=(), splits_k=False))
    alone = gemm_work(own, shape, sms, static_order=True).alone_ticks
    group = f"{WAITS[row['waits']]}, {'all SMs' if sms == gpu.sms else 'fewer SMs'}"
    label = f"{shape.m} x {shape.n} x {shape.k} in tiles of {tile_m} x {tile_n} on {sms} SMs"
    measured = float(row["time_us"]) / float(row["library_us"])
    predicted = alone / gemm_work(gpu, shape, gpu.sms).alone_ticks
    return TableComparison(gpu.name, TILES_OPERATION, group, label, measured, predicted)


def _order(row: Mapping[str, str]) -> TableComparison | str:
    found = _gemm(row)
    sizes = [whole_number(row, name, MAX_SIZE) for name in ("tile_m", "tile_n", "order")]
    if isinstance(found, str) or None in sizes:
        return found if isinstance(found, str) else "a tile or an order that is not a whole number"
    gpu, shape = found
    tile_m, tile_n, order = (size for size in sizes if size is not None)
    extra = extra_hbm_bytes(shape, (tile_m, tile_n), gpu.sms, gpu.l2.size_bytes, gpu.l2.instances, order)
    once = shape.operand_bytes
    label = f"{shape.m} x {shape.n} x {shape.k} in tiles of {tile_m} x {tile_n}, {order} rows together"
    return TableComparison(gpu.name, ORDER_OPERATION, "all", label, float(row["read_bytes"]) / once, 1 + extra / once)


def _gemm(row: Mapping[str, str]) -> tuple[Gpu, GemmShape] | str:
    _, gpu = gpu_named(row["gpu"])
    if gpu is None or row["dtype"] not in {each.value for each in DType}:
        return "no profile of the GPU, or an element type that is not known"
    sizes = [whole_number(row, name, MAX_SIZE) for name in "mnk"]
    if None in sizes:
        return "a size that is not a whole number in the range of the model"
    m, n, k = (size for size in sizes if size is not None)
    return gpu, GemmShape(m, n, k, DType(row["dtype"]))
