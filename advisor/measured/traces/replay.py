"""A step of a run: as measured, as simulated in the order in which it ran, and its text for all that Magus does.

Products and collectives take the times that the profile of the GPU gives, all else the times that were measured: so the
errors by kind say how far the profile is from this run, and the total what that and the queues come to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....compiler import compile_text
from ....compiler.codes import Code
from ....compiler.ir import TICKS_PER_US, Gpu
from ....compiler.machine.known_gpus import LibraryGpu
from ....compiler.machine.machine import requested_gpu
from ....compiler.planning.knobs.library import library_engine, library_rejection
from ....compiler.text.diagnostics import Report, Source, Span
from ....compiler.text.fmt import format_text
from ....compiler.text.load import unreadable
from ....simcore.figures.result import Result
from ..tables.gemm import profile_of
from .chrome import TraceError
from .graph import SLACK_US, GraphWriter, RunOp, graph_of
from .ranks import TracedRank, check_clocks, rank_doubts, ranks_of, with_waits
from .run import TracedCollective, TracedGemm, TracedKernel, TracedRun, TracedStep, Unused, pairs_of
from .times import AS_IT_RAN, KindTimes, RankTimes, StepPart, at_ranks, kinds_of, parts_between, ranks_apart, unit_doubt
from .workloads import MESH, TraceOrigin, head_of, model_of, run_of, system_text

MAX_PAUSE_US = 1e6
"""Kernels with more time than this between them are of different runs, or of different clocks."""
MAX_KERNELS = 1024
"""Kernels that are taken of a step: a file has at most 40,000 words, and so many take up to 30 each."""
PART_KERNELS = 128
"""Kernels of a part of a step: each may need two operations of a workload, which has 256."""
KEPT_STEPS = 4
"""Steps at the end of a trace of which kernels are kept, where none is asked for."""
_COARSE_BYTES, _FINEST_BYTES, _MOST_LINE_HOPS = 64 << 10, 1 << 10, 100_000_000
WORKLOAD = "step"


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A step with the ``text`` of its ``parts``, one after the other, of ``ranks`` whose traces are known.

    ``idle_us`` is how long no kernel of the first ran, and ``waited_us`` how long its collectives waited for other
    ranks, which is known from their traces alone.
    """

    title: str
    text: str
    parts: tuple[StepPart, ...]
    ranks: tuple[TracedRank, ...]
    idle_us: float
    waited_us: float
    doubts: tuple[str, ...]

    @property
    def measured_us(self) -> float:
        """From the first begin of a kernel to the last end, of all ranks that are known."""
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
        """Return the times of kernels of the first rank by their kind, those that took most time first."""
        return kinds_of(list(zip(self.parts, results, strict=True)), self.ranks[0].place)

    def rank_times(self, results: Sequence[Result]) -> tuple[RankTimes, ...]:
        """Return the times of each rank, in the order of ranks; none where the trace of one alone is known."""
        if len(self.ranks) == 1:
            return ()
        simulated_us = self.total_us([each.makespan_us for each in results])
        return ranks_apart(list(zip(self.parts, results, strict=True)), self.ranks, self.measured_us, simulated_us)


def read_step(
    file: Path, name: str, gpu: str, step: int | None, report: Report, others: Sequence[Path] = ()
) -> ReplayedStep:
    """Return one step of the trace in ``file``, called ``name``; ``gpu`` is empty if the trace names the GPU.

    ``others`` are traces of other ranks of the same run, which say how long collectives waited for them.
    """
    spans = [Span(Source(each, ""), 0, 0) for each in (name, *map(str, others))]
    requested = requested_gpu(gpu, Span(Source("--gpu", gpu), 0, len(gpu)), report) if gpu else None
    runs = list[TracedRun]()
    for each, place in zip((file, *others), spans, strict=True):
        try:
            runs.append(_needed(run_of(each), step))
        except TraceError as error:
            raise report.fail(Code.MGS630, str(error), place) from None
        except OSError as error:
            raise unreadable(each, report, place, error) from None
    return replayed_step(runs, name.rpartition("/")[2], requested, step, spans, report)


def replayed_step(
    runs: Sequence[TracedRun],
    file: str,
    requested: LibraryGpu | None,
    step: int | None,
    spans: Sequence[Span],
    report: Report,
) -> ReplayedStep:
    """Return one step of a run, on a node of the library with the GPU that is ``requested`` or that the run names.

    ``runs`` are that of the rank that is replayed, and those of others, ``spans`` where each is said. ``step`` is its
    number where the run marks steps, None for the last that all have. Mistakes go to ``report``.
    """
    model = requested or model_of(runs[0], spans[0], report)
    if step is None and len(runs) > 1:
        step = _common_step(runs)
    for run, span in zip(runs, spans, strict=True):
        if not run.kernels:
            hint = "profile with ProfilerActivity.CUDA on a machine with GPUs"
            raise report.fail(Code.MGS631, "; ".join(("the trace has no kernels of a GPU", *run.notes)), span, hint)
    of_step = [_of_one_clock(_in_step(run, step, span, report)) for run, span in zip(runs, spans, strict=True)]
    waiting = with_waits(of_step, spans[0], report)
    run, ranks = waiting[0], _ranks(waiting[0], model)
    known = ranks_of(waiting, ranks)
    check_clocks(known, run, spans[0], report)
    if len(run.kernels) > MAX_KERNELS:
        note = f"only the first {MAX_KERNELS:,} of {len(run.kernels):,} kernels are taken"
        run = _only(run, run.kernels[:MAX_KERNELS], note)
    cut = parts_of(run)
    graphs = [graph_of(_only(run, kernels), ranks) for kernels in cut]
    doubts = (
        *_unit_doubts(runs, model),
        *_doubts(run, [op for ops in graphs for op in ops]),
        *rank_doubts(run, known, len(runs), ranks),
        *_cut_doubts(cut),
    )
    of_ranks = [_of_ranks(ops, known, ranks) for ops in graphs]
    text, writers = _text(TraceOrigin(file, run.kind, run.rank, doubts), of_ranks, model, known[0].place)
    parts = tuple(parts_between(compile_text(text), writers))
    waited_us = sum(each.waited_us for each in run.kernels)
    return ReplayedStep(_title(run, file, model, ranks), text, parts, known, _idle_us(run.kernels), waited_us, doubts)


def _unit_doubts(runs: Sequence[TracedRun], model: LibraryGpu) -> Iterator[str]:
    """Say of which traces the times are in another unit."""
    gpu = _gpu(model)
    found = ((unit_doubt(run, gpu), "" if run.rank is None else f"rank {run.rank}: ") for run in runs)
    yield from (f"{rank}{doubt}" for doubt, rank in found if doubt)


def _gpu(model: LibraryGpu) -> Gpu:
    gpu = profile_of(model.name)
    assert gpu is not None, "a GPU of the library"
    return gpu


def _of_ranks(ops: Sequence[RunOp], known: Sequence[TracedRank], ranks: int) -> tuple[tuple[RunOp, ...], ...]:
    """The ops as each of ``ranks`` ran them; of those whose trace is not ``known`` as the first did."""
    if len(known) == 1:
        return (tuple(ops),) * ranks
    same = {each.place: each.same for each in known}
    return at_ranks(ops, [same.get(place, known[0].same) for place in range(ranks)])


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
        found = [kernel for kernel in run.kernels if _began_in(kernel, each)]
        if found:
            return _only(run, found, f"step {each.number} of those that the trace marks: {known}")
    if step is not None:
        raise report.fail(Code.MGS633, f"no kernel began in step {step}", span, f"it marks {known}")
    return run


def _needed(run: TracedRun, step: int | None) -> TracedRun:
    """The run with the kernels of the step that is asked for, or of the last few: there may be many long traces."""
    wanted = [each for each in run.steps if step in (None, each.number)][-KEPT_STEPS:]
    kernels = [kernel for kernel in run.kernels if any(_began_in(kernel, each) for each in wanted)]
    return _only(run, kernels) if kernels else run


def _began_in(kernel: TracedKernel, step: TracedStep) -> bool:
    return step.start_us <= kernel.start_us < step.end_us


def _common_step(runs: Sequence[TracedRun]) -> int | None:
    """The last step in which all runs that mark steps have kernels; None where there is none."""
    common = [
        {each.number for each in run.steps[-KEPT_STEPS:] if any(_began_in(one, each) for one in run.kernels)}
        for run in runs
        if run.steps
    ]
    return max(set.intersection(*common), default=None) if common else None


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
    return replace(run, kernels=tuple(kernels), notes=(*notes, *run.notes))


def _text(
    origin: TraceOrigin, graphs: Sequence[Sequence[Sequence[RunOp]]], model: LibraryGpu, own: int
) -> tuple[str, dict[str, GraphWriter]]:
    """The file of all parts, each as all ranks ran it, of which ``own`` is replayed; and what wrote its workloads."""
    ranks = len(graphs[0])
    base = "\n".join([*head_of(origin, model), system_text(model, ranks)])
    gpu = _gpu(model)
    names = [WORKLOAD] if len(graphs) == 1 else [f"{WORKLOAD}_{number}" for number in range(1, len(graphs) + 1)]
    launch_us = gpu.launch.kernel_ticks / TICKS_PER_US
    writers = {name: GraphWriter(ops[own], gpu.sms, launch_us, ops) for name, ops in zip(names, graphs, strict=True)}
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
