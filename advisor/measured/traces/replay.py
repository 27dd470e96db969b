"""A step of a run: as measured, as simulated in the order in which it ran, and its text for all that Magus does.

Products and collectives take the times that the profile of the GPU gives, all else the times that were measured: so the
errors by kind say how far the profile is from this run, and the total what that and the queues come to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import TICKS_PER_US, Scenario
from ....compiler.machine.known_gpus import LibraryGpu
from ....compiler.machine.machine import requested_gpu
from ....compiler.planning.knobs.library import library_engine, library_rejection
from ....compiler.planning.plan import own_name
from ....compiler.text.diagnostics import Report, Source, Span
from ....compiler.text.fmt import format_text
from ....simcore.figures.result import Result
from ....simcore.simulate_layers import simulate_layers
from .chakra import is_chakra, read_chakra
from .graph import RunOp, graph_of
from .graph_text import GraphWriter, NamedOp
from .kineto import ChromeTrace, TraceError, read_run
from .run import TracedCollective, TracedGemm, TracedKernel, TracedRun
from .workloads import HEAD, MESH, TraceOrigin, byte_pieces, head_of, is_trace, model_of, system_text, text_pieces

MAX_PAUSE_US = 1e6
"""Kernels with more time than this between them are of different runs, or of different clocks."""
MAX_KERNELS = 128
"""Kernels that are taken of a step: each may need two operations of a workload, which has 256."""
_COARSE_BYTES, _FINEST_BYTES, _MOST_LINE_HOPS = 64 << 10, 1 << 10, 100_000_000
AS_IT_RAN = "as_it_ran"
WORKLOAD = "step"


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Kernels of one kind: how many there are, and how long they take together, in us."""

    kind: str
    count: int
    measured_us: float
    simulated_us: float


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A step with its ``text``, and ``measured_us`` from the first begin of a kernel to the last end.

    ``idle_us`` is how long no kernel ran. ``scenario`` has the schedule ``AS_IT_RAN``.
    """

    title: str
    text: str
    scenario: Scenario
    ops: tuple[NamedOp, ...]
    measured_us: float
    idle_us: float
    doubts: tuple[str, ...]

    def simulated(self) -> Result:
        """Return the simulation of the step in the order in which it ran, in units as fine as some seconds allow.

        Raises
        ------
        ScheduleError, RunTooLarge
            As ``simulate_layers``.
        """
        coarse = self._simulated(_COARSE_BYTES)
        unit = _COARSE_BYTES
        while unit > _FINEST_BYTES and coarse.line_hops * _COARSE_BYTES // unit * 2 <= _MOST_LINE_HOPS:
            unit //= 2
        return coarse if unit == _COARSE_BYTES else self._simulated(unit)

    def _simulated(self, unit_bytes: int) -> Result:
        schedule = next(each for each in self.scenario.schedules if each.name == AS_IT_RAN)
        return simulate_layers(
            self.scenario.system, self.scenario.workload, schedule, name=self.scenario.name, unit_bytes=unit_bytes
        )

    def kinds(self, result: Result) -> tuple[KindTimes, ...]:
        """Return the times of kernels by their kind, those that took most time first."""
        times = {own_name(op.name): op for op in result.ops}
        found: dict[str, list[tuple[float, float]]] = {}
        for each in self.ops:
            own = times[each.name]
            for part, ticks in zip(each.op.parts, _ticks_of(each.op, own.compute_ticks, own.comm_ticks), strict=True):
                found.setdefault(kind_of(part), []).append((part.end_us - part.start_us, ticks / TICKS_PER_US))
        kinds = [
            KindTimes(kind, len(each), sum(one for one, _ in each), sum(two for _, two in each))
            for kind, each in found.items()
        ]
        return tuple(sorted(kinds, key=lambda each: -each.measured_us))


def _ticks_of(op: RunOp, compute: int, comm: int) -> tuple[int, ...]:
    """The simulated times of the parts of an op: those of its kernel and of its collective."""
    if op.collective is None:
        return (compute,)
    return (comm,) if op.kernel is None else (compute, comm)


def kind_of(kernel: TracedKernel) -> str:
    """What a kernel is, in a word."""
    match kernel.does:
        case TracedGemm(groups=1):
            return "GEMM"
        case TracedGemm():
            return "grouped GEMM"
        case TracedCollective(operation=operation):
            return operation
        case _:
            return "other kernels"


def read_step(file: Path, name: str, gpu: str, step: int | None, report: Report) -> ReplayedStep:
    """Return one step of the trace in ``file``, called ``name``; ``gpu`` is empty if the trace names the GPU.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    span = Span(Source(name, ""), 0, 0)
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    try:
        run = _run_of(file)
    except TraceError as error:
        raise report.fail(Code.MGS630, str(error), span) from None
    return replayed_step(run, name.rpartition("/")[2], requested, step, span, report)


def _run_of(file: Path) -> TracedRun:
    if is_chakra(byte_pieces(file)):
        return read_chakra(byte_pieces(file))
    if not is_trace(next(text_pieces(file), "")[:HEAD]):
        raise TraceError("it is no trace of torch.profiler, and none of Chakra")
    return read_run(ChromeTrace(text_pieces(file)))


def replayed_step(
    run: TracedRun, file: str, requested: LibraryGpu | None, step: int | None, span: Span, report: Report
) -> ReplayedStep:
    """Return one step of a run, on a node of the library with the GPU that is ``requested`` or that the run names.

    ``step`` is its number where the run marks steps, None for the last that is whole. Mistakes go to ``report``, at
    ``span``.
    """
    model = requested or model_of(run, span, report)
    if not run.kernels:
        hint = "profile with ProfilerActivity.CUDA on a machine with GPUs"
        raise report.fail(Code.MGS631, "the trace has no kernels of a GPU", span, hint)
    run = _of_one_clock(_in_step(run, step, span, report))
    ranks = _ranks(run, model)
    if len(run.kernels) > MAX_KERNELS:
        note = (
            f"only the first {MAX_KERNELS} of {len(run.kernels):,} kernels are taken: a workload has no more operations"
        )
        run = _only(run, list(run.kernels[:MAX_KERNELS]), note)
    ops = graph_of(run, ranks)
    doubts = tuple(_doubts(run, ops))
    text, writer = _text(TraceOrigin(file, run.kind, run.rank, doubts), ops, model, ranks)
    compiled = compile_text(text)
    return ReplayedStep(
        _title(run, file, model, ranks),
        text,
        compiled.scenario(WORKLOAD),
        tuple(writer.named),
        max(op.end_us for op in ops) - min(op.start_us for op in ops),
        _idle_us(run.kernels),
        doubts,
    )


def _title(run: TracedRun, file: str, model: LibraryGpu, ranks: int) -> str:
    rank = "" if run.rank is None else f" of rank {run.rank}"
    streams = len({each.stream for each in run.kernels})
    kernels = f"{len(run.kernels):,} kernels in {streams} stream{'s' * (streams > 1)}"
    return f"{file}: {kernels}{rank}, by {run.kind}, on {ranks} x {model.name}"


def _in_step(run: TracedRun, step: int | None, span: Span, report: Report) -> TracedRun:
    """The kernels of one step; all of them where none is asked for and none is marked."""
    known = ", ".join(str(each.number) for each in run.steps[:16])
    if step is not None and all(each.number != step for each in run.steps):
        message = f"the trace marks no step {step}"
        raise report.fail(Code.MGS633, message, span, f"it marks {known}" if known else "profiler.step() marks steps")
    wanted = [each for each in run.steps if step in (None, each.number)]
    for each in reversed(wanted):
        found = [kernel for kernel in run.kernels if each.start_us <= kernel.start_us < each.end_us]
        if found:
            return _only(run, found, f"step {each.number} of those that the trace marks: {known}")
    if step is not None:
        raise report.fail(Code.MGS633, f"no kernel began in step {step}", span, f"it marks {known}")
    return run


def _of_one_clock(run: TracedRun) -> TracedRun:
    """The kernels between which less than a second passes, of which those that take most time are kept."""
    parts = list[list[TracedKernel]]()
    busy_until = float("-inf")
    for each in run.kernels:
        if each.start_us - busy_until > MAX_PAUSE_US:
            parts.append([])
        parts[-1].append(each)
        busy_until = max(busy_until, each.end_us)
    most = max(parts, key=lambda part: sum(each.end_us - each.start_us for each in part))
    left = len(run.kernels) - len(most)
    return _only(run, most, f"{left} kernels are a second or more from the others: left out") if left else run


def _only(run: TracedRun, kernels: list[TracedKernel], note: str) -> TracedRun:
    gemms = tuple(each.does for each in kernels if isinstance(each.does, TracedGemm))
    collectives = tuple(each.does for each in kernels if isinstance(each.does, TracedCollective))
    kept, notes = tuple(kernels), (note, *run.notes)
    return replace(run, kernels=kept, gemms=gemms, collectives=collectives, notes=notes)


def _text(origin: TraceOrigin, ops: Sequence[RunOp], model: LibraryGpu, ranks: int) -> tuple[str, GraphWriter]:
    base = "\n".join([*head_of(origin, model), system_text(model, ranks)])
    one = f"workload one on node_{ranks} {{\n  x = tensor bf16[8, 8]\n  y = norm(x)\n}}"
    gpu = compile_text(f"{base}\n{one}\n").scenario("one").gpu
    writer = GraphWriter(ops, gpu.sms, gpu.launch.kernel_ticks / TICKS_PER_US)
    workload = writer.workload(WORKLOAD, f"node_{ranks}")
    cases = compile_text(f"{base}\n{workload}\n").scenario(WORKLOAD).cases
    by_library = all(library_rejection(case) is None for case in cases if case.shape.moved is not None)
    schedule = writer.schedule(AS_IT_RAN, WORKLOAD, str(library_engine(gpu)) if by_library else "")
    return format_text("\n".join([base, workload, "", schedule, ""])), writer


def _ranks(run: TracedRun, model: LibraryGpu) -> int:
    """The ranks of the collectives that take most time, of those within a node; 2 where there are none."""
    most, took = model.ports or MESH, dict[int, float]()
    for each in run.collectives:
        if 2 <= each.num_ranks <= most:
            took[each.num_ranks] = took.get(each.num_ranks, 0.0) + each.end_us - each.start_us
    return max(took, key=lambda ranks: (took[ranks], ranks), default=2)


def _idle_us(kernels: Iterable[TracedKernel]) -> float:
    """How long none of the kernels ran, from the first to the last."""
    idle, busy_until = 0.0, float("inf")
    for each in sorted(kernels, key=lambda each: each.start_us):
        idle += max(0.0, each.start_us - busy_until)
        busy_until = each.end_us if busy_until == float("inf") else max(busy_until, each.end_us)
    return idle


def _doubts(run: TracedRun, ops: Sequence[RunOp]) -> list[str]:
    others = [op.kernel for op in ops if op.kernel is not None and op.collective is None]
    timed = sum(not isinstance(each.does, TracedGemm) for each in others)
    moving = sum(isinstance(each.does, TracedCollective) for each in others)
    doubts = [
        "no trace says which kernel reads what: each waits for all that had ended when it began, but for pairs, whose"
        " sizes fit",
        f"{timed} of {len(run.kernels)} kernels are no products: they take the time that was measured",
    ]
    if moving:
        doubts.append(f"{moving} collectives of other ranks than the node's, or without their sizes, are among them")
    return [*doubts, *run.notes]
