"""Traces read, and their pairs as workloads, with measured times beside predicted ones.

A trace does not say how the GPUs are joined: the system is the node of the library.
"""

import codecs
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import TICKS_PER_US, GemmShape, GroupedGemmShape, OpCase
from ....compiler.machine.known_gpus import LibraryGpu, device_named, library_gpu
from ....compiler.machine.machine import requested_gpu
from ....compiler.text.diagnostics import Report, Source, Span
from ....compiler.text.fmt import format_text
from ....compiler.text.rewriting import comment_lines
from ....compiler.text.units import us_text
from ....simcore.kernels.grouped_gemm import grouped_gemm_work
from ....simcore.lower.collective import library_collective_time
from .. import Imported
from ..tables.gemm_times import gemm_ticks
from .chakra import is_chakra, read_chakra
from .chrome import ChromeTrace, TraceError
from .kineto import read_run
from .ranks import begun_together, with_waits
from .run import PairShape, TracedPair, TracedRun, Unused, find_pairs, reported

_WORDS = {"all_gather": "ag_gemm", "reduce_scatter": "gemm_rs", "all_reduce": "gemm_ar", "all_to_all": "gemm_a2a"}


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """Where pairs come from: the file, the kind of trace, its rank, and what is in doubt."""

    file: str
    kind: str
    rank: int | None
    doubts: tuple[str, ...]


def workloads_text(pairs: Sequence[TracedPair], model: LibraryGpu, origin: TraceOrigin) -> str:
    """Return a file with a system for each number of ranks and a workload for each pair.

    All pairs have as many ranks as a switch of the library has ports, or fewer.
    """
    systems = [system_text(model, ranks) for ranks in sorted({pair.shape.num_ranks for pair in pairs})]
    base = [*head_of(origin, model), *systems]
    named = [(f"{_word(pair.shape)}_{number}", pair) for number, pair in enumerate(pairs, 1)]
    bare = "\n".join([*base, *(_workload(name, pair.shape) for name, pair in named)])
    compiled = compile_text(bare)
    blocks = [
        "\n".join(["", *_times(pair, compiled.scenario(name).case), _workload(name, pair.shape)])
        for name, pair in named
    ]
    return format_text("\n".join([*base, *blocks]) + "\n")


def head_of(origin: TraceOrigin, model: LibraryGpu) -> list[str]:
    """The lines in front of systems: what a file was read from, what is in doubt, and the library of the GPU."""
    rank = "" if origin.rank is None else f", rank {origin.rank}"
    doubts = ["how the GPUs are joined is not in a trace: they are a node of the library", *origin.doubts]
    comments = [
        *comment_lines(f"Read from {origin.file[:128]}, a trace of {origin.kind}{rank}."),
        "#",
        "# In doubt:",
        *(line for doubt in doubts for line in comment_lines(doubt, "- ")),
    ]
    return ["mgs 1", "", *comments, "", f'use "{model.library}"', ""]


def system_text(model: LibraryGpu, ranks: int) -> str:
    """A node of so many GPUs, as the library has it."""
    fabric = f"switch(nvswitch, link={model.link})" if model.is_nvidia else f"full_mesh({model.link})"
    return f"system node_{ranks} {{ gpus {ranks} x {model.name}; fabric {fabric} }}\n"


def _word(shape: PairShape) -> str:
    word = "a2a_gemm" if shape.dispatched else _WORDS[shape.operation]
    return word.replace("gemm", "experts") if shape.groups > 1 else word


def _workload(name: str, shape: PairShape) -> str:
    """The tensors of all ranks: a GEMM of one rank has a part of the columns, or of the inner dimension."""
    left, right = (
        f"tensor {shape.dtype.value}[{rows}, {cols}]{f' shard {shard}' if shard else ''}"
        for rows, cols, shard in operands_of(shape)
    )
    return f"workload {name} on node_{shape.num_ranks} {{\n  x = {left}\n  w = {right}\n  y = {pair_call(shape)}\n}}"


def operands_of(shape: PairShape) -> tuple[tuple[int, int, str], tuple[int, int, str]]:
    """(rows, columns, shard) of both tensors of all ranks."""
    n = shape.num_ranks
    if shape.operation == "all_to_all":
        return (shape.m, shape.k, ""), (shape.groups * shape.k, shape.n, "")
    if shape.is_gathered:
        return (shape.m, shape.k, "rows"), (shape.k, shape.n * n, "cols")
    return (shape.m, shape.k * n, "cols"), (shape.k * n, shape.n, "rows")


def pair_call(shape: PairShape, x: str = "x", w: str = "w") -> str:
    """The product of ``x`` and ``w`` with its collective."""
    if shape.is_gathered:
        return product_call(f"{shape.operation}({x})", w, shape.m, shape.groups)
    return f"{shape.operation}({product_call(x, w, shape.m, shape.groups)})"


def product_call(x: str, w: str, m: int, groups: int) -> str:
    """A product of ``m`` rows; of several experts each has as many, or one more."""
    if groups == 1:
        return f"gemm({x}, {w})"
    each, more = divmod(m, groups)
    rows = ", ".join(str(each + (number < more)) for number in range(groups))
    return f"grouped_gemm({x}, {w}, rows=[{rows}])"


def _times(pair: TracedPair, scenario: OpCase) -> list[str]:
    """Comments: what the run took, and what the profile of the library says of both parts alone."""
    shape = pair.shape
    together = "."
    if pair.together_us is not None:
        together = f", both together {us_text(pair.together_us)}; {pair.hidden:.0%} of the {shape.operation} hidden."
    times = "time" if pair.count == 1 else "times"
    measured = (
        f"{pair.count} {times} in the trace, medians: {shape.operation} {us_text(pair.collective_us)}, GEMM"
        f" {us_text(pair.gemm_us)}{together}"
    )
    gemm_us = _gemm_ticks(scenario) / TICKS_PER_US
    try:
        collective = us_text(library_collective_time(scenario).us)
    except ValueError:
        collective = f"not predicted, {scenario.gpu.name} has no constants for it"
    return [
        *comment_lines(measured),
        *comment_lines(f"Predicted, each alone: {shape.operation} {collective}, GEMM {us_text(gemm_us)}."),
    ]


def _gemm_ticks(scenario: OpCase) -> int:
    """Ticks of the product alone on all SMs."""
    shape, gpu = scenario.shape.compute, scenario.gpu
    if isinstance(shape, GroupedGemmShape):
        return grouped_gemm_work(gpu, shape, gpu.sms).alone_ticks
    assert isinstance(shape, GemmShape), "pairs of a trace have a GEMM, or one of several experts"
    return int(gemm_ticks(gpu, np.array([[shape.m, shape.n, shape.k]], dtype=np.int64), shape.dtype)[0])


MAX_WORKLOADS = 32
MESH = 8
"""GPUs of a full mesh of xGMI links."""


def run_of(file: Path) -> TracedRun:
    """Return what a trace says, one of torch.profiler or of Chakra.

    Raises
    ------
    OSError
        If it cannot be read; a TraceError if it is none.
    """
    if is_chakra(byte_pieces(file)):
        return read_chakra(byte_pieces(file))
    if not is_trace(next(text_pieces(file), "")[:HEAD]):
        raise TraceError("it is no trace of torch.profiler, and none of Chakra")
    return read_run(ChromeTrace(text_pieces(file)))


def read_text(text: str) -> TracedRun:
    """Return what a trace of torch.profiler says.

    Raises
    ------
    TraceError
        If it is none.
    """
    return read_run(ChromeTrace(iter((text,))))


def read_traces(read: Sequence[tuple[str, Callable[[], TracedRun]]], gpu: str, report: Report) -> Imported:
    """Return the workloads of a run, by how the trace of each file is ``read``; others are of other ranks.

    Times are those of the first, without what its collectives waited for the others. ``gpu`` is empty if the trace
    names the GPU.
    """
    file, _ = read[0]
    span = Span(Source(file, ""), 0, 0)
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    runs = list[TracedRun]()
    for name, each in read:
        try:
            runs.append(each())
        except TraceError as error:
            raise report.fail(Code.MGS630, str(error), Span(Source(name, ""), 0, 0)) from None
    run = begun_together(with_waits(runs, span, report)[0]) if len(runs) > 1 else runs[0]
    _check_run(run, span, report)
    model = requested or model_of(run, span, report)
    most = model.ports or MESH
    unpaired = Unused()
    pairs = find_pairs(run, unpaired)
    run = replace(run, unused=(*reported(unpaired), *run.unused))
    fitting = [pair for pair in pairs if pair.shape.num_ranks <= most]
    if not fitting:
        found = f"the GEMMs ({len(run.gemms)}) and collectives ({len(run.collectives)})"
        message = f"no pair in one node among {found} of the trace{_also(run)}"
        raise report.fail(Code.MGS632, message, span, "docs/machines.md says what is one")
    doubts = _doubts(run, pairs, fitting, requested)
    rank = run.rank
    text = workloads_text(fitting[:MAX_WORKLOADS], model, TraceOrigin(file.rpartition("/")[2], run.kind, rank, doubts))
    return Imported(text, len(fitting[:MAX_WORKLOADS]))


def _check_run(run: TracedRun, span: Span, report: Report) -> None:
    if not run.num_kernels:
        hint = "profile with ProfilerActivity.CUDA on a machine with GPUs"
        raise report.fail(Code.MGS631, "; ".join(("the trace has no kernels of a GPU", *run.notes)), span, hint)
    if not run.gemms:
        if not run.has_shapes:
            message, hint = "the trace has no GEMM whose shape it says", "profile with record_shapes=True"
        else:
            message, hint = "the trace has no GEMM that is read", "docs/machines.md lists those that are"
        raise report.fail(Code.MGS631, message + _not_used(run), span, hint)
    if not run.collectives:
        message = f"the trace has no collective of NCCL or RCCL with its size{_not_used(run)}"
        raise report.fail(Code.MGS631, message, span)


def _not_used(run: TracedRun) -> str:
    """What was seen and not used, with a colon before it."""
    return f": {'; '.join(run.unused)}" if run.unused else ""


def _also(run: TracedRun) -> str:
    return f"; not used are {'; '.join(run.unused)}" if run.unused else ""


def model_of(run: TracedRun, span: Span, report: Report) -> LibraryGpu:
    """The GPU of the library that is nearest to that of a run."""
    device = device_named(run.gpu)
    found = library_gpu(device.nearest) if device is not None and device.nearest else None
    if found is None:
        said = f"'{run.gpu}'" if run.gpu else "nothing"
        message = f"the trace says {said} of its GPU, which the library does not have"
        raise report.fail(Code.MGS604, message, span, "name the nearest one: --gpu H100")
    return found


def _doubts(
    run: TracedRun, pairs: Sequence[TracedPair], fitting: Sequence[TracedPair], requested: LibraryGpu | None
) -> tuple[str, ...]:
    doubts = ["pairs are those whose sizes fit and that follow each other: no trace says which kernel reads what"]
    if requested is not None:
        doubts.append(f"the GPU is {requested.name} because --gpu says so; the trace says '{run.gpu or 'nothing'}'")
    in_pairs = sum(pair.count for pair in pairs)
    if in_pairs < len(run.collectives):
        doubts.append(f"{len(run.collectives) - in_pairs} of {len(run.collectives)} collectives fit no GEMM")
    if len(fitting) < len(pairs):
        doubts.append(
            f"{len(pairs) - len(fitting)} kinds of pairs have more ranks than a node of the library: left out"
        )
    if len(fitting) > MAX_WORKLOADS:
        doubts.append(f"{len(fitting) - MAX_WORKLOADS} further kinds of pairs that take less time were left out")
    if any(pair.shape.operation == "all_to_all" for pair in fitting):
        doubts.append("all ranks and experts get as many rows in an all_to_all: no trace says how many each gets")
    doubts.extend(f"not used: {what}" for what in run.unused)
    return (*doubts, *run.notes)


HEAD = 4096
"""Characters that tell a trace."""
PIECE = 1 << 18
PACKED_PIECE = 1 << 12
"""Packed bytes that are lost with the damage that is in them."""
_MEMBERS = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"')
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31


def is_trace(head: str) -> bool:
    """Whether a text that begins with ``head`` is a trace."""
    return head.lstrip("\ufeff \t\r\n").startswith("{") and any(member in head for member in _MEMBERS)


def byte_pieces(path: Path) -> Iterator[bytes]:
    """Yield what a file holds.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as stream:
        yield from iter(lambda: stream.read(PIECE), b"")


def text_pieces(path: Path) -> Iterator[str]:
    """Yield the text of a file; one that is packed and damaged ends where the damage begins.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with path.open("rb") as stream:
        packed = stream.read(len(_GZIP)) == _GZIP
        stream.seek(0)
        if packed:
            yield from map(decode, _unpacked(iter(lambda: stream.read(PACKED_PIECE), b"")))
        else:
            yield from map(decode, iter(lambda: stream.read(PIECE), b""))


def _unpacked(data: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_BITS)
    for piece in data:
        rest = piece
        while rest:
            try:
                unpacked = unpacker.decompress(rest, PIECE)
            except zlib.error:
                return
            yield unpacked
            rest = unpacker.unconsumed_tail
            if unpacker.eof:  # another member may follow
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_BITS)
