"""A step of a run: as measured, as simulated in the order in which it ran, and its text for all that Magus does.

Products and collectives take the times that the profile of the GPU gives, all else the times that were measured: so the
errors by kind say how far the profile is from this run, and the total what that and the queues come to.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from .chrome import ChromeTrace, TraceError
from .graph import SLACK_US, GraphWriter, NamedOp, RunOp, graph_of
from .kineto import read_run
from .ranks import with_waits
from .run import TracedCollective, TracedGemm, TracedKernel, TracedRun, Unused, pairs_of
from .workloads import HEAD, MESH, TraceOrigin, byte_pieces, head_of, is_trace, model_of, system_text, text_pieces

MAX_PAUSE_US = 1e6
"""Kernels with more time than this between them are of different runs, or of different clocks."""
MAX_KERNELS = 1024
"""Kernels that are taken of a step: a file has at most 40,000 words, and so many take up to 30 each."""
PART_KERNELS = 128
"""Kernels of a part of a step: each may need two operations of a workload, which has 256."""
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
class StepPart:
    """A part of a step, a workload: ``scenario`` has a schedule whose name begins with ``AS_IT_RAN``.

    It takes ``measured_us`` from the first begin of a kernel to the last end, and begins ``gap_us`` after those before
    it have ended: less than 0 where the step was cut while some of them ran.
    """

    scenario: Scenario
    ops: tuple[NamedOp, ...]
    measured_us: float
    gap_us: float

    def simulated(self, unit_bytes: int) -> Result:
        """Return the simulation of the part in the order in which it ran, in units of so many bytes."""
        schedule = next(each for each in self.scenario.schedules if each.name.startswith(AS_IT_RAN))
        return simulate_layers(
            self.scenario.system, self.scenario.workload, schedule, name=self.scenario.name, unit_bytes=unit_bytes
        )


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A step with the ``text`` of its ``parts``, one after the other.

    ``idle_us`` is how long no kernel ran, and ``waited_us`` how long collectives waited for other ranks, which is known
    from their traces alone.
    """

    title: str
    text: str
    parts: tuple[StepPart, ...]
    idle_us: float
    waited_us: float
    doubts: tuple[str, ...]

    @property
    def measured_us(self) -> float:
        """From the first begin of a kernel to the last end."""
        return self.total_us([part.measured_us for part in self.parts])

    def total_us(self, times: Sequence[float]) -> float:
        """The time of the step if its parts take ``times``, in us, and what was between them stays."""
        return sum(times) + sum(part.gap_us for part in self.parts)

    def simulated(self) -> tuple[Result, ...]:
        """Return the simulation of each part in the order in which it ran, in units as fine as some seconds allow.

        Raises
        ------
        ScheduleError, RunTooLarge
            As ``simulate_layers``.
        """
        coarse = tuple(part.simulated(_COARSE_BYTES) for part in self.parts)
        line_hops, unit = sum(each.line_hops for each in coarse), _COARSE_BYTES
        while unit > _FINEST_BYTES and line_hops * _COARSE_BYTES // unit * 2 <= _MOST_LINE_HOPS:
            unit //= 2
        return coarse if unit == _COARSE_BYTES else tuple(part.simulated(unit) for part in self.parts)

    def kinds(self, results: Sequence[Result]) -> tuple[KindTimes, ...]:
        """Return the times of kernels by their kind, those that took most time first."""
        found: dict[str, list[tuple[float, float]]] = {}
        for part, result in zip(self.parts, results, strict=True):
            times = {own_name(op.name): op for op in result.ops}
            for each in part.ops:
                own = times[each.name]
                ticks = _ticks_of(each.op, own.compute_ticks, own.comm_ticks)
                for kernel, took in zip(each.op.parts, ticks, strict=True):
                    found.setdefault(kind_of(kernel), []).append((kernel.took_us, took / TICKS_PER_US))
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


def read_step(
    file: Path, name: str, gpu: str, step: int | None, report: Report, others: Sequence[Path] = ()
) -> ReplayedStep:
    """Return one step of the trace in ``file``, called ``name``; ``gpu`` is empty if the trace names the GPU.

    ``others`` are traces of other ranks of the same run, which say how long collectives waited for them.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    span = Span(Source(name, ""), 0, 0)
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    runs = list[TracedRun]()
    for each, place in ((file, span), *((other, Span(Source(str(other), ""), 0, 0)) for other in others)):
        try:
            runs.append(_run_of(each))
        except TraceError as error:
            raise report.fail(Code.MGS630, str(error), place) from None
    return replayed_step(runs, name.rpartition("/")[2], requested, step, span, report)


def _run_of(file: Path) -> TracedRun:
    if is_chakra(byte_pieces(file)):
        return read_chakra(byte_pieces(file))
    if not is_trace(next(text_pieces(file), "")[:HEAD]):
        raise TraceError("it is no trace of torch.profiler, and none of Chakra")
    return read_run(ChromeTrace(text_pieces(file)))


def replayed_step(
    runs: Sequence[TracedRun],
    file: str,
    requested: LibraryGpu | None,
    step: int | None,
    span: Span,
    report: Report,
) -> ReplayedStep:
    """Return one step of a run, on a node of the library with the GPU that is ``requested`` or that the run names.

    ``runs`` are that of the rank that is replayed, and those of others. ``step`` is its number where the run marks
    steps, None for the last that is whole. Mistakes go to ``report``, at ``span``.
    """
    model = requested or model_of(runs[0], span, report)
    if not all(run.kernels for run in runs):
        hint = "profile with ProfilerActivity.CUDA on a machine with GPUs"
        raise report.fail(Code.MGS631, "the trace has no kernels of a GPU", span, hint)
    run = with_waits([_of_one_clock(_in_step(each, step, span, report)) for each in runs], span, report)
    ranks = _ranks(run, model)
    if len(run.kernels) > MAX_KERNELS:
        note = f"only the first {MAX_KERNELS:,} of {len(run.kernels):,} kernels are taken"
        run = _only(run, run.kernels[:MAX_KERNELS], note)
    cut = parts_of(run)
    graphs = [graph_of(_only(run, kernels), ranks) for kernels in cut]
    doubts = (*_doubts(run, [op for ops in graphs for op in ops]), *_cut_doubts(cut))
    text, writers = _text(TraceOrigin(file, run.kind, run.rank, doubts), graphs, model, ranks)
    compiled = compile_text(text)
    parts, ended = list[StepPart](), min(each.start_us for each in run.kernels)
    for name, writer in writers.items():
        begin = min(op.start_us for op in writer.ops)
        end = max(ended, *(op.end_us for op in writer.ops))
        parts.append(StepPart(compiled.scenario(name), tuple(writer.named), end - begin, begin - ended))
        ended = end
    waited_us = sum(each.waited_us for each in run.kernels)
    return ReplayedStep(_title(run, file, model, ranks), text, tuple(parts), _idle_us(run.kernels), waited_us, doubts)


def parts_of(run: TracedRun, most: int = PART_KERNELS) -> tuple[tuple[TracedKernel, ...], ...]:
    """Cut the kernels of a run into parts of at most ``most``.

    A cut is where the kernels before it have ended, with the pairs that they begin, or overlap least with what follows;
    of such places it is the last.
    """
    held = dict[TracedGemm | TracedCollective, float]()  # when the pair that it is in has ended
    for _, collective, gemm in pairs_of(run, Unused()):
        held[collective] = held[gemm] = max(collective.end_us, gemm.end_us)
    kernels, parts = run.kernels, list[tuple[TracedKernel, ...]]()
    while len(kernels) > most:
        busy_until, found = float("-inf"), (float("inf"), 0)
        for place, each in enumerate(kernels[: most + 1]):
            if place:
                found = min(found, (max(0.0, busy_until - each.start_us - SLACK_US), -place))
            busy_until = max(busy_until, each.end_us, held.get(each.does, 0.0) if each.does is not None else 0.0)
        parts.append(kernels[: -found[1]])
        kernels = kernels[-found[1] :]
    return (*parts, kernels)


def _cut_doubts(cut: Sequence[Sequence[TracedKernel]]) -> Iterator[str]:
    """That a step is simulated in parts, and how many of its cuts are in what runs."""
    if len(cut) > 1:
        ends = [max(each.end_us for each in part) for part in cut]
        through = sum(end > part[0].start_us + SLACK_US for end, part in zip(ends, cut[1:], strict=False))
        note = f"{len(cut)} parts of at most {PART_KERNELS} kernels are simulated one after the other"
        yield f"{note}; cuts through kernels that ran: {through}" if through else f"{note}, cut where no kernel ran"


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


def _only(run: TracedRun, kernels: Sequence[TracedKernel], *notes: str) -> TracedRun:
    gemms = tuple(each.does for each in kernels if isinstance(each.does, TracedGemm))
    collectives = tuple(each.does for each in kernels if isinstance(each.does, TracedCollective))
    kept = tuple(kernels)
    return replace(run, kernels=kept, gemms=gemms, collectives=collectives, notes=(*notes, *run.notes))


def _text(
    origin: TraceOrigin, graphs: Sequence[Sequence[RunOp]], model: LibraryGpu, ranks: int
) -> tuple[str, dict[str, GraphWriter]]:
    """The file of all parts, and what has written each of its workloads."""
    base = "\n".join([*head_of(origin, model), system_text(model, ranks)])
    one = f"workload one on node_{ranks} {{\n  x = tensor bf16[8, 8]\n  y = norm(x)\n}}"
    gpu = compile_text(f"{base}\n{one}\n").scenario("one").gpu
    names = [WORKLOAD] if len(graphs) == 1 else [f"{WORKLOAD}_{number}" for number in range(1, len(graphs) + 1)]
    launch_us = gpu.launch.kernel_ticks / TICKS_PER_US
    writers = {name: GraphWriter(ops, gpu.sms, launch_us) for name, ops in zip(names, graphs, strict=True)}
    workloads = {name: writer.workload(name, f"node_{ranks}") for name, writer in writers.items()}
    compiled = compile_text("\n".join([base, *workloads.values()]) + "\n")
    lines = [base]
    for name, writer in writers.items():
        cases = compiled.scenario(name).cases
        by_library = all(library_rejection(case) is None for case in cases if case.shape.moved is not None)
        engine = str(library_engine(gpu)) if by_library else ""
        lines += [workloads[name], "", writer.schedule(AS_IT_RAN + name.removeprefix(WORKLOAD), name, engine), ""]
    return format_text("\n".join(lines)), writers


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
