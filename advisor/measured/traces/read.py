"""Workloads of a trace: the pairs of GEMMs and collectives of a run, as a file of the language."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ....compiler.codes import Code
from ....compiler.machine.device_ids import LibraryGpu, device_named, library_gpu
from ....compiler.machine.identify import asked_gpu
from ....compiler.text.diagnostics import Report
from ....compiler.text.source import Source, Span
from .chakra import read_chakra
from .chrome import ChromeTrace, TraceError
from .kineto import read_run
from .pairs import TracedPair, find_pairs
from .run import TracedRun, Unused, told
from .workloads import TraceOrigin, workloads_text

MAX_WORKLOADS = 32
_MESH = 8
"""GPUs of a full mesh of xGMI links."""


@dataclass(frozen=True, slots=True)
class TraceWorkloads:
    """The file of workloads, and how many it has."""

    text: str
    count: int


def read_trace(pieces: Iterator[str], file: str, gpu: str, report: Report) -> TraceWorkloads:
    """Return the workloads of a trace, whose text comes in pieces; ``gpu`` is empty if the trace names the GPU."""
    return _workloads(lambda: read_run(ChromeTrace(pieces)), file, gpu, report)


def read_chakra_trace(pieces: Iterator[bytes], file: str, gpu: str, report: Report) -> TraceWorkloads:
    """Return the workloads of a Chakra trace, which comes in pieces; ``gpu`` must not be empty."""
    return _workloads(lambda: read_chakra(pieces), file, gpu, report)


def _workloads(read: Callable[[], TracedRun], file: str, gpu: str, report: Report) -> TraceWorkloads:
    span = Span(Source(file, ""), 0, 0)
    asked = asked_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    try:
        run = read()
    except TraceError as error:
        raise report.fail(Code.MGS630, str(error), span) from None
    _check_run(run, span, report)
    model = asked or _model(run, span, report)
    most = model.ports or _MESH
    unpaired = Unused()
    pairs = find_pairs(run, unpaired)
    run = replace(run, unused=(*told(unpaired), *run.unused))
    fitting = [pair for pair in pairs if pair.shape.num_ranks <= most]
    if not fitting:
        found = f"the GEMMs ({len(run.gemms)}) and collectives ({len(run.collectives)})"
        message = f"no pair in one node among {found} of the trace{_also(run)}"
        raise report.fail(Code.MGS632, message, span, "docs/machines.md says what is one")
    doubts = _doubts(run, pairs, fitting, asked)
    rank = run.rank
    text = workloads_text(fitting[:MAX_WORKLOADS], model, TraceOrigin(file.rpartition("/")[2], run.kind, rank, doubts))
    return TraceWorkloads(text, len(fitting[:MAX_WORKLOADS]))


def _check_run(run: TracedRun, span: Span, report: Report) -> None:
    if not run.num_kernels:
        hint = "profile with ProfilerActivity.CUDA on a machine with GPUs"
        raise report.fail(Code.MGS631, "the trace has no kernels of a GPU", span, hint)
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


def _model(run: TracedRun, span: Span, report: Report) -> LibraryGpu:
    device = device_named(run.gpu)
    found = library_gpu(device.nearest) if device is not None and device.nearest else None
    if found is None:
        said = f"'{run.gpu}'" if run.gpu else "nothing"
        message = f"the trace says {said} of its GPU, which is none of the library"
        raise report.fail(Code.MGS604, message, span, "name the nearest one: --gpu H100")
    return found


def _doubts(
    run: TracedRun, pairs: Sequence[TracedPair], fitting: Sequence[TracedPair], asked: LibraryGpu | None
) -> tuple[str, ...]:
    doubts = ["pairs are those whose sizes fit and that follow each other: no trace says which kernel reads what"]
    if asked is not None:
        doubts.append(f"the GPU is {asked.name} because --gpu says so; the trace says '{run.gpu or 'nothing'}'")
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
