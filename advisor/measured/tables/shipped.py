"""Tables that ship with Magus, measured for it (``advisor/measured/rows``), against the GEMM form and copies.

They say at their top how they were measured. GEMMs beside copies within the memory of one GPU: ``kernels/copy.py``.
GEMMs by how they are timed, by kernels of one tile, and by what they read: whose microseconds a table of small GEMMs
has in it, what clock a table of large ones was measured at, what a kernel of its own costs beside the library's, and
what the order of tiles reads (``working_set.py``). No constant is fitted to those.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

from ....compiler.ir import TICKS_PER_US, DType, GemmShape, Gpu
from ....simcore.kernels.copy import slowdown_beside_copies
from ....simcore.kernels.gemm import gemm_work
from ....simcore.kernels.working_set import extra_hbm_bytes
from .collectives import gpu_named, whole_number
from .csv_rows import TableComparison, rows_in

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
BESIDE_OPERATION = "GEMM beside copies"
ENGINES = {"ce": "copy engines", "sm": "SMs"}
BESIDE_NUMBERS = ("m", "n", "k", "copied_gb_s", "alone_us", "beside_us")
MAX_SATURATED = 0.6
"""Copies alone that take more of memory than this are left out: the rest of it is too little to be told apart."""
MAX_SIZE = 1 << 24


def beside_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table, grouped by what copies and by half, or why rows were left out.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    yield from rows_in((path,), ("gpu", "dtype", "beside", "copy_sms", "half"), BESIDE_NUMBERS, _beside)


def state_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of times, grouped by state, or why rows were left out.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    yield from rows_in((path,), ("gpu", "dtype", "state"), ("m", "n", "k", "time_us"), _state)


def tile_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of kernels of one tile; "times" are those over the library's kernel.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    numbers = ("m", "n", "k", "tile_m", "tile_n", "sms", "time_us", "library_us")
    yield from rows_in((path,), ("gpu", "dtype", "waits"), numbers, _tile)


def order_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of bytes read; "times" are bytes over reading each operand once.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    numbers = ("m", "n", "k", "tile_m", "tile_n", "order", "read_bytes")
    yield from rows_in((path,), ("gpu", "dtype"), numbers, _order)


def _beside(row: Mapping[str, str]) -> TableComparison | str:
    found = _gemm(row)
    if isinstance(found, str):
        return found
    gpu, shape = found
    if row["beside"] not in ENGINES or not row["copy_sms"].isdecimal() or int(row["copy_sms"]) >= gpu.sms:
        return "an engine that is not known, or a number of SMs that is not a whole number in the range of the model"
    bytes_per_s = float(row["copied_gb_s"]) * 1e9
    if 2 * bytes_per_s > MAX_SATURATED * gpu.hbm.achieved_bytes_per_s:
        return f"copies that take more than {MAX_SATURATED:.0%} of memory"
    slower = slowdown_beside_copies(gpu, shape, gpu.sms - int(row["copy_sms"]), bytes_per_s)
    label = f"{shape.m} x {shape.n} x {shape.k} beside {row['copied_gb_s']} GB/s"
    alone_us = float(row["alone_us"])
    return TableComparison(
        gpu.name, BESIDE_OPERATION, _group(gpu, shape, row), label, float(row["beside_us"]), alone_us * slower
    )


def _group(gpu: Gpu, shape: GemmShape, row: Mapping[str, str]) -> str:
    """What copies, and which half; GEMMs that memory limits are a group of their own."""
    by = f"by {ENGINES[row['beside']]}"
    intensity = shape.flops / (shape.operand_bytes + shape.output_bytes)
    if intensity * gpu.hbm.achieved_bytes_per_s < gpu.peak(shape.dtype):
        return f"{by}, limited by memory"
    return f"{by}, {row['half']}"


def _state(row: Mapping[str, str]) -> TableComparison | str:
    found = _gemm(row)
    if isinstance(found, str):
        return found
    gpu, shape = found
    if row["state"] not in STATES:
        return "a state of the GPU that is not known"
    label = f"{shape.m} x {shape.n} x {shape.k}, {row['state']}"
    clocked = replace(gpu, sustained=None) if row["state"] == "burst" else gpu  # a rested GPU
    us = gemm_work(clocked, shape, gpu.sms).alone_ticks / TICKS_PER_US
    return TableComparison(gpu.name, STATES_OPERATION, STATES[row["state"]], label, float(row["time_us"]), us)


def _tile(row: Mapping[str, str]) -> TableComparison | str:
    found = _tiled(row, "sms", "a tile or number of SMs")
    if isinstance(found, str):
        return found
    gpu, shape, (tile_m, tile_n, sms) = found
    if sms > gpu.sms or row["waits"] not in WAITS:
        return "more SMs than the GPU has, or a wait that is not known"
    if (tile_m, tile_n) not in gpu.gemm.tiles:
        return f"a tile of {tile_m} x {tile_n}, which the profile has not"
    alone = gemm_work(gpu, shape, sms, static_order=True, tile=(tile_m, tile_n)).alone_ticks
    group = f"{WAITS[row['waits']]}, {'all SMs' if sms == gpu.sms else 'fewer SMs'}"
    label = f"{shape.m} x {shape.n} x {shape.k} in tiles of {tile_m} x {tile_n} on {sms} SMs"
    measured = float(row["time_us"]) / float(row["library_us"])
    predicted = alone / gemm_work(gpu, shape, gpu.sms).alone_ticks
    return TableComparison(gpu.name, TILES_OPERATION, group, label, measured, predicted)


def _order(row: Mapping[str, str]) -> TableComparison | str:
    found = _tiled(row, "order", "a tile or an order")
    if isinstance(found, str):
        return found
    gpu, shape, (tile_m, tile_n, order) = found
    extra = extra_hbm_bytes(shape, (tile_m, tile_n), gpu.sms, gpu.l2.size_bytes, gpu.l2.instances, order)
    once = shape.operand_bytes
    label = f"{shape.m} x {shape.n} x {shape.k} in tiles of {tile_m} x {tile_n}, {order} rows together"
    return TableComparison(gpu.name, ORDER_OPERATION, "all", label, float(row["read_bytes"]) / once, 1 + extra / once)


def _tiled(row: Mapping[str, str], last: str, what: str) -> tuple[Gpu, GemmShape, tuple[int, int, int]] | str:
    """The GEMM of a row with the sides of its tile and the number in ``last``; ``what`` these are for a message."""
    found = _gemm(row)
    tile_m, tile_n, number = (whole_number(row, name, MAX_SIZE) for name in ("tile_m", "tile_n", last))
    if isinstance(found, str):
        return found
    if tile_m is None or tile_n is None or number is None:
        return f"{what} that is not a whole number"
    return *found, (tile_m, tile_n, number)


def _gemm(row: Mapping[str, str]) -> tuple[Gpu, GemmShape] | str:
    _, gpu = gpu_named(row["gpu"])
    if gpu is None or row["dtype"] not in {each.value for each in DType}:
        return "no profile of the GPU, or an element type that is not known"
    sizes = [whole_number(row, name, MAX_SIZE) for name in "mnk"]
    if None in sizes:
        return "a size that is not a whole number in the range of the model"
    m, n, k = (size for size in sizes if size is not None)
    return gpu, GemmShape(m, n, k, DType(row["dtype"]))


READERS = {
    "beside_*.csv": beside_comparisons,
    "gemm_states_*.csv": state_comparisons,
    "gemm_tiles_*.csv": tile_comparisons,
    "tile_order_*.csv": order_comparisons,
}


def shipped_comparisons() -> Iterator[TableComparison | str]:
    """Yield the rows of all tables that ship, or why rows were left out."""
    with as_file(files((__package__ or "").rpartition(".")[0]).joinpath("rows")) as folder:
        for pattern, comparisons in READERS.items():
            for path in sorted(folder.glob(pattern)):
                yield from comparisons(path)
