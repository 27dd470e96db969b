"""Run many programs, such as the candidates of a search: side by side where that is faster, else one by one.

Every ``Run`` is the one that the program has by itself. Side by side, windows that would be thin share
their cost, so it pays where the programs' windows are thin and yet a flow has more than a handful of line-hops: what
flows and ops cost is the same in every core. Windows that are fat pay already, and very fat ones leave the cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import ShouldStop, StepsDone
from ..program.limits import DEFAULT_BUDGET, RunBudget, check_budget, least_ticks
from ..program.outcome import Run, RunOutcome
from ..program.program import Program
from . import batch_windows, engine, windows
from .engine import Core, EngineUnavailable, finished_run
from .sort_keys import KeyWidthError, time_bits
from .vain_polls import polls_in_vain

NAME = "lanes"
"""Name of the core in runs that were simulated side by side."""

MAX_LANES = 64
"""Programs in one run of windows."""

MAX_LINE_HOPS_PER_WINDOW = 8_000
"""Above this many line-hops in the window of all lanes, its arrays leave the cache and more lanes do not help."""

MIN_LINE_HOPS_PER_WINDOW = 400
"""Below this many line-hops in the window of all lanes there is too little to share it: the heap core is faster."""

MAX_LINE_HOPS_PER_LANE = 2_000
"""Above this many line-hops in the window of one lane, a program is as fast by itself."""

MIN_LINE_HOPS_PER_FLOW = 7
"""Below this many line-hops a flow, the heap core is faster: there are more flows to begin than units to serve."""

MAX_WINDOW_RATIO = 2
"""Lanes share the shortest window. No lane may be more than this many times slower than by itself."""

MIN_LINE_HOPS_COMPILED = 1_000_000
"""Below this many line-hops in all programs, loading numba takes longer than all runs in lanes."""

WINDOWS_IN_FIELD = 512
"""Windows for which the time field of a key must have room, since units queue for longer than one window."""


def run_lanes(
    programs: Sequence[Program],
    *,
    should_stop: ShouldStop | None = None,
    progress: StepsDone | None = None,
    core: Core | None = None,
    budget: RunBudget = DEFAULT_BUDGET,
) -> tuple[Run, ...]:
    """Simulate ``programs``; the runs come in their order.

    Parameters
    ----------
    programs
        What to run.
    should_stop
        Asked now and then; when it says yes, runs that are not over are CANCELLED.
    progress
        Told now and then how many line-hops have been simulated, over all programs.
    core
        Which core to use; ``Core.WINDOWS`` simulates side by side whether or not that should be faster.
    budget
        What each run may take.

    Raises
    ------
    EngineUnavailable
        If ``core``, or the one named by the environment variable MAGUS_ENGINE, cannot be used here.
    RunTooLarge
        If it is known before that a run would take more than ``budget``.
    """
    batch = _Batch(budget, should_stop, progress)
    demanded = core or engine.core_from_environment()
    if demanded is None and engine.has_numba() and _line_hops(programs) >= MIN_LINE_HOPS_COMPILED:
        try:
            return tuple(batch.run(program, Core.COMPILED) for program in programs)
        except EngineUnavailable:  # it is there and does not load
            batch = _Batch(budget, should_stop, progress)
    if demanded not in (None, Core.WINDOWS):
        return tuple(batch.run(program, demanded) for program in programs)
    runs: dict[int, Run] = {}
    for block in _blocks(programs, forced=demanded is Core.WINDOWS):
        runs.update(zip(block, _run_block([programs[idx] for idx in block], batch, demanded), strict=True))
    return tuple(runs[idx] for idx in range(len(programs)))


class _Batch:
    """State shared by the runs: line-hops are added up over all of them, and a stop ends all of them."""

    def __init__(self, budget: RunBudget, should_stop: ShouldStop | None, progress: StepsDone | None) -> None:
        self._budget, self._should_stop, self._progress = budget, should_stop, progress
        self._line_hops = 0  # of the runs that are over
        self._stopped = False

    def tell(self, line_hops: int) -> None:
        """Report ``line_hops`` of the run that goes on."""
        if self._progress is not None:
            self._progress(self._line_hops + line_hops)

    def stop(self) -> bool:
        """Whether to stop, now and from now on."""
        self._stopped = self._stopped or (self._should_stop is not None and self._should_stop())
        return self._stopped

    def run(self, program: Program, core: Core | None) -> Run:
        """Run one program by itself."""
        result = engine.run(program, core=core, should_stop=self.stop, progress=self.tell, budget=self._budget)
        self._line_hops += result.line_hops
        return result

    def _alone(self, program: Program) -> Run:
        """``program`` by itself in windows, line-hops not told twice."""
        return engine.run(program, core=Core.WINDOWS, should_stop=self.stop, budget=self._budget)

    def run_side_by_side(self, programs: Sequence[Program]) -> list[Run] | None:
        """Run ``programs`` in one run of windows; None if they do not fit into it together."""
        for program in programs:
            check_budget(program, Core.WINDOWS.value, self._budget)
        budget = replace(self._budget, seconds=self._budget.seconds * len(programs))
        watch = engine.Watch(budget, self.stop, self.tell)
        try:
            lanes = batch_windows.simulate(programs, watch)
        except KeyWidthError:
            return None
        if watch.verdict is RunOutcome.MEMORY:
            return None
        runs = []
        for program, (control, served) in zip(programs, lanes, strict=True):
            verdict = watch.verdict if served.cancelled else RunOutcome.DONE
            run = finished_run(program, NAME, control, served, verdict)
            # What goes on polling for ever would hold up the others once more.
            runs.append(self._alone(program) if polls_in_vain(program, run) else run)
        self._line_hops += sum(run.line_hops for run in runs)
        return runs


def _run_block(programs: Sequence[Program], batch: _Batch, core: Core | None) -> list[Run]:
    """Run ``programs`` side by side; in halves, if they do not fit into one run of windows."""
    if len(programs) == 1:
        return [batch.run(programs[0], core)]
    runs = batch.run_side_by_side(programs)
    if runs is None:
        half = len(programs) // 2
        return _run_block(programs[:half], batch, core) + _run_block(programs[half:], batch, core)
    return runs


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of a program by which lanes are put together."""

    idx: int
    window_ticks: int
    num_windows: float  # about
    line_hops: int
    num_flows: int
    num_servers: int
    num_hops: int

    @property
    def line_hops_per_window(self) -> float:
        return self.line_hops / self.num_windows

    @property
    def pays(self) -> bool:
        """Whether it is worth a lane."""
        thin = self.line_hops_per_window <= MAX_LINE_HOPS_PER_LANE
        return thin and self.line_hops >= MIN_LINE_HOPS_PER_FLOW * self.num_flows


def _shape(idx: int, program: Program) -> _Shape:
    window = windows.window_ticks(program)
    return _Shape(
        idx=idx,
        window_ticks=window,
        num_windows=max(1.0, least_ticks(program) / window),
        line_hops=program.num_line_hops,
        num_flows=program.num_flows,
        num_servers=program.num_servers,
        num_hops=program.num_hops,
    )


def _blocks(programs: Sequence[Program], *, forced: bool) -> Iterator[list[int]]:
    """Indices of programs that go side by side; those that go by themselves are blocks of one.

    Lanes of a block have windows about equally long, and about equally many, so that they end at about the same time.
    """
    laned = [
        _shape(idx, program)
        for idx, program in enumerate(programs)
        if program.num_hops and not len(program.buffer_units)
    ]
    if not forced:
        laned = [shape for shape in laned if shape.pays]
        enough = sum(shape.line_hops_per_window for shape in laned) >= MIN_LINE_HOPS_PER_WINDOW
        laned = laned if enough else []
    taken = {shape.idx for shape in laned}
    yield from ([idx] for idx in range(len(programs)) if idx not in taken)
    for group in _alike(laned):
        yield from _cut(group)


def _alike(shapes: Sequence[_Shape]) -> Iterator[list[_Shape]]:
    """Groups within ``MAX_WINDOW_RATIO``, from short runs to long ones each."""
    group: list[_Shape] = []
    for shape in sorted(shapes, key=lambda shape: shape.window_ticks):
        if group and shape.window_ticks > MAX_WINDOW_RATIO * group[0].window_ticks:
            yield sorted(group, key=lambda shape: shape.num_windows)
            group = []
        group.append(shape)
    yield sorted(group, key=lambda shape: shape.num_windows)


def _cut(shapes: Sequence[_Shape]) -> Iterator[list[int]]:
    """Blocks of as many lanes as are of use and fit into a key."""
    block: list[_Shape] = []
    for shape in shapes:
        if block and not _good([*block, shape]):
            yield [lane.idx for lane in block]
            block = []
        block.append(shape)
    if block:
        yield [lane.idx for lane in block]


def _good(block: Sequence[_Shape]) -> bool:
    """Whether lanes should go side by side; two may always, if they fit."""
    width = time_bits(sum(lane.num_servers for lane in block), sum(lane.num_hops for lane in block))
    line_hops = sum(lane.line_hops_per_window for lane in block)
    in_field = WINDOWS_IN_FIELD * max(lane.window_ticks for lane in block) < 1 << max(width, 0)
    return in_field and (len(block) <= 2 or (len(block) <= MAX_LANES and line_hops <= MAX_LINE_HOPS_PER_WINDOW))


def _line_hops(programs: Sequence[Program]) -> int:
    return sum(program.num_line_hops for program in programs)
