"""Measured and predicted times of implementations, and their speedups over the library."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from ....compiler import CompileError
from ....compiler.ir import TICKS_PER_US, DType, GemmShape, Gpu, Rejection
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ....simcore.kernels.copy import slowdown_beside_copies
from ....simcore.kernels.gemm import gemm_work
from ....simcore.kernels.working_set import extra_hbm_bytes
from ...implementations.predict import Promise, call_times
from .csv_rows import TableComparison, grouped, read_rows, rows_in, tables_of, whole_number
from .fused import (
    COLUMNS,
    MAX_RANKS,
    NUMBERS,
    PATTERNS,
    SERIAL,
    SWEEP_COLUMNS,
    SWEEP_NUMBERS,
    SWEEP_PATTERNS,
    FusedPart,
    partner_key,
    parts_of,
    scenario_on,
)
from .gemm import gpu_named

SERIAL_NAMES = (*SERIAL, "unfused baseline", "torch GEMM + NCCL RS RING_LL")
# Parts of the names that tables use, and the shipped implementation.
KNOWN_AS: Mapping[str, str] = {
    "flux": "flux",
    "fused_all_gather_matmul": "torch_async_tp",
    "decomp async-TP": "torch_async_tp",
    "torch_async_tp": "torch_async_tp",
    "fused_scaled_matmul_reduce_scatter": "torch_async_tp",
    "multimem_all_gather": "torch_multimem",
    "kraken": "kraken",
    "triton-distributed": "triton_distributed",
    "triton-dist with fast path": "triton_distributed",
    "mKernel": "mkernel",
    "ThunderKittens": "thunderkittens",
    "fused GEMM-RS (multimem": "vllm_fused",
    "existing fused GEMM-AR": "vllm_fused",
    "FlagTree multimem": "flagtree",
}
# What is another kernel on these GPUs.
OF_GPU: Mapping[tuple[str, str], str] = {
    ("flux", "A100"): "flux_ampere",
    ("flux", "A800"): "flux_ampere",
    ("mkernel", "H100"): "mkernel_hopper",
}
# Threads that name no GPU. The serial time of the first is that of an H800, and half as long again as that of an H100.
# The second has a Blackwell, B200 or GB300, whose profiles differ by 3 % on its rows.
GPU_OF_SOURCE: Mapping[str, str] = {
    "github.com/bytedance/flux/issues/79": "H800",
    "github.com/vllm-project/vllm/pull/52079": "B200",
}
OF_ONE_GPU = "script args --m"


@dataclass(frozen=True, slots=True)
class ImplementationRow:
    """A measured time of an implementation; ``serial_us`` is that of its partner, None if the table has none.

    With ``whole_thread`` no row of its thread was fitted to. A time ``in_graph`` has no call from the host in it.
    """

    name: str
    gpu: str
    ranks: int
    dtype: DType
    part: FusedPart
    fused_us: float
    serial_us: float | None
    source: str
    held_out: bool = False
    whole_thread: bool = False
    in_graph: bool = False

    @property
    def label(self) -> str:
        """For instance ``H100 AG+GEMM 1024 x 6656 x 4096``, with the type if it is not one of 16 bits."""
        dtype = f" {self.dtype.value}" if self.dtype.mean_bytes != 2 else ""
        return f"{self.gpu} {self.part}{dtype}"


def implementation_rows(folder: Path) -> tuple[ImplementationRow, ...]:
    """Return the rows of all tables of ``folder``, ordered by implementation, pattern, thread and shape.

    Raises
    ------
    MeasuredError
        If a table cannot be read.
    """
    found = [row for path in tables_of(folder, PATTERNS) for row in _rows_of(path)]
    found += [row for path in tables_of(folder, SWEEP_PATTERNS) for row in _swept(path)]
    by_thread = grouped(found, lambda row: (row.name, row.part.pattern.value, row.source))
    rows: list[ImplementationRow] = []
    for thread in sorted(by_thread):
        ordered = sorted(by_thread[thread], key=lambda row: (row.part.m, row.part.n, row.part.k, row.gpu))
        alone = len(ordered) == 1
        rows += (
            replace(row, held_out=alone or index % 2 == 1, whole_thread=alone) for index, row in enumerate(ordered)
        )
    return tuple(rows)


def _rows_of(path: Path) -> Iterator[ImplementationRow]:
    table = read_rows(path, COLUMNS, NUMBERS)
    partners = {partner_key(row): float(row["time_us"]) for row in table.rows if row["impl"] in SERIAL_NAMES}
    for row in table.rows:
        found = _row(row, partners.get(partner_key(row)))
        if found is not None:
            yield found


def _swept(path: Path) -> Iterator[ImplementationRow]:
    """The times of mKernel with its best number of copying SMs: of one launch behind a barrier."""
    for row in read_rows(path, SWEEP_COLUMNS, SWEEP_NUMBERS).rows:
        found = _row({**row, "op": row["pattern"], "impl": "mKernel", "time_us": row["best_static_us"]}, None)
        if found is not None:
            yield replace(found, in_graph=True)


def _row(row: Mapping[str, str], serial_us: float | None) -> ImplementationRow | None:
    """Return the row of an implementation, None if it is another's or its GPU, type or shape is not stated."""
    source = row.get("source", "")
    name = next((name for known, name in KNOWN_AS.items() if known in row["impl"]), None)
    gpu_text, gpu = gpu_named(GPU_OF_SOURCE.get(source, row["gpu"]))
    ranks, dtype = whole_number(row, "n_gpus", MAX_RANKS), row.get("dtype", "").partition(" ")[0]
    name = OF_GPU.get((name or "", gpu_text), name)
    if name is None or gpu is None or ranks is None or ranks < 2 or dtype not in [known.value for known in DType]:
        return None
    parts = parts_of({**row, "shape_semantics": semantics_of(row)}, ranks)
    if len(parts) != 1:
        return None
    return ImplementationRow(name, gpu_text, ranks, DType(dtype), parts[0], float(row["time_us"]), serial_us, source)


def semantics_of(row: Mapping[str, str]) -> str:
    """Return whose shape is stated; a script that takes sizes as arguments is run by each GPU with them."""
    stated = row.get("shape_semantics", "")
    return "per GPU" if stated.startswith(OF_ONE_GPU) else stated


LIBRARY = "torch_nccl"
MARGIN = 0.02
"""An implementation is slower if it takes more than this share longer than the library."""


@dataclass(frozen=True, slots=True)
class ImplementationComparison:
    """One row, with the predicted times of the library and of the implementation.

    ``within`` is the error that its promise has without the rows of its thread, None if there are no others.
    """

    row: ImplementationRow
    serial_us: float
    fused_us: float
    within: float | None = None

    @property
    def measured(self) -> float:
        """The measured speedup; without a partner that over its predicted time."""
        return (self.row.serial_us or self.serial_us) / self.row.fused_us

    @property
    def predicted(self) -> float:
        """The predicted speedup."""
        return self.serial_us / self.fused_us

    @property
    def error(self) -> float:
        """Signed relative error of the predicted speedup, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def fused_error(self) -> float:
        """Signed relative error of the predicted time of the fused kernel, in percent."""
        return 100 * (self.fused_us / self.row.fused_us - 1)

    @property
    def sign_is_right(self) -> bool:
        """Whether it is predicted to be faster than the library where it is, and slower where it is."""
        return (self.predicted > 1) == (self.measured > 1)

    @property
    def promise(self) -> Promise:
        """What is promised where it is called as in the benchmark."""
        return Promise(self.predicted, self.within)

    @property
    def promised(self) -> bool:
        """Whether the predicted gain is beyond that error."""
        return self.promise.verdict is Verdict.OVERLAP

    @property
    def slower(self) -> bool:
        """Whether it is measured to be slower than the library."""
        return self.measured < 1 - MARGIN


def implementation_comparisons(
    rows: Sequence[ImplementationRow], advance: Callable[[], None]
) -> Iterator[ImplementationComparison | str]:
    """Yield the prediction of every row, or a text that says why there is none; ``advance`` is called after each."""
    for row in rows:
        yield _compared(row)
        advance()


def _compared(row: ImplementationRow) -> ImplementationComparison | str:
    try:
        scenario = scenario_on(row.gpu, row.ranks, row.dtype, row.part)
    except CompileError as error:
        return f"{row.name}, {row.label}: {str(error).splitlines()[0]}"
    shipped = {each.name: each for each in shipped_implementations(scenario.system)}
    times = [call_times(scenario, shipped[name]) for name in (LIBRARY, row.name)]
    for us in times:
        if isinstance(us, Rejection):
            return f"{row.label}: {us.message}"
    found = [us for us in times if not isinstance(us, Rejection)]
    serial_us, fused_us = (us.graph_us if row.in_graph else us.us for us in found)
    return ImplementationComparison(row, serial_us, fused_us)


# Tables that ship with Magus, measured for it (``advisor/measured/rows``), against the GEMM form and copies.
#
# They say at their top how they were measured. GEMMs beside copies within the memory of one GPU: ``kernels/copy.py``.
# GEMMs by how they are timed, by kernels of one tile, and by what they read: whose microseconds a table of small GEMMs
# has in it, what clock a table of large ones was measured at, what a kernel of its own costs beside the library's, and
# what the order of tiles reads (``working_set.py``). No constant is fitted to those.

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


_SIZES, _TILE = ("m", "n", "k"), ("m", "n", "k", "tile_m", "tile_n")
READERS = {
    "beside_": (("gpu", "dtype", "beside", "copy_sms", "half"), BESIDE_NUMBERS, _beside),
    "gemm_states_": (("gpu", "dtype", "state"), (*_SIZES, "time_us"), _state),
    "gemm_tiles_": (("gpu", "dtype", "waits"), (*_TILE, "sms", "time_us", "library_us"), _tile),
    "tile_order_": (("gpu", "dtype"), (*_TILE, "order", "read_bytes"), _order),
}
"""How names of tables begin: their columns, those that are numbers, and what compares a row.

What is compared are times beside copies by what copies and by half, times by state, those of a kernel of one tile over
the library's, and bytes over reading each operand once.
"""


def own_comparisons(path: Path) -> Iterator[TableComparison | str]:
    """Yield the rows of one table of ``READERS``, or why rows were left out.

    Raises
    ------
    MeasuredError
        If it cannot be read.
    """
    columns, numbers, compared = next(how for begin, how in READERS.items() if path.name.startswith(begin))
    yield from rows_in((path,), columns, numbers, compared)


def shipped_comparisons() -> Iterator[TableComparison | str]:
    """Yield the rows of all tables that ship, or why rows were left out."""
    with as_file(files((__package__ or "").rpartition(".")[0]).joinpath("rows")) as folder:
        for begin in READERS:
            for path in sorted(folder.glob(f"{begin}*.csv")):
                yield from own_comparisons(path)
