"""Answers made by hand: an Advice with Results of round figures, and stages that hand them out, slowly if asked to."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from threading import Event

from magus.advisor.bounds.lower_bound import Bound
from magus.advisor.candidates.advice import Advice, Confidence, Timing
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin
from magus.compiler.ir import (
    TICKS_PER_US,
    Cancelled,
    EngineChoice,
    EngineKind,
    OpCase,
    OpPlan,
    Progress,
    Scenario,
    Settings,
    ShouldStop,
)
from magus.compiler.pipeline import Compiled
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore.figures.result import Interval, IntervalKind, Result, Timeline, Traffic, Utilization, Waterfall
from magus.simcore.program.program import RunOutcome
from magus.tui.app.session.backend import Backend
from tests.helpers.scenarios import scenarios

SERIAL = "serial(engine=dma(7))"
BEST = "uniform_fused_2d(chunks=32, engine=dma(7))"
LONG = "hetero_unfused_1d(chunks=128, engine=sm(32), streams=4)"
TIE = "uniform_fused_1d(chunks=32, engine=dma(7))"
UNSEEN = "uniform_fused_1d(chunks=64, engine=dma(7))"
BOUND_US = 80.0
ENGINES = 7


def ticks(us: float) -> int:
    """Time in us as ticks."""
    return round(us * TICKS_PER_US)


def schedule(expression: str) -> OpPlan:
    """A schedule that only has a name."""
    return OpPlan(expression, (), EngineChoice(EngineKind.DMA, ENGINES), 304, 0)


def timeline(makespan_us: float, parts: int, num_ranks: int) -> Timeline:
    """``parts`` rounds of transfers on every engine, each followed by a kernel; a reduction ends it."""
    found, step = [], makespan_us / (parts + 1)
    for part in range(parts):
        for engine in range(ENGINES):
            start, end = ticks(part * step), ticks((part + 1) * step - 1)
            found.append(Interval(0, f"dma {engine}", f"x{part}_{engine + 1}", IntervalKind.COMM, start, end))
        start, end = ticks((part + 1) * step), ticks((part + 2) * step - (2 if part == parts - 1 else 0))
        found.append(Interval(0, "stream 0", f"g{part}", IntervalKind.COMPUTE, start, end))
    found.append(Interval(0, "stream 1", "sum", IntervalKind.REDUCE, ticks(makespan_us - 2), ticks(makespan_us)))
    return Timeline(num_ranks, ticks(makespan_us), tuple(found), 1)


def result(scenario: OpCase, expression: str, makespan_us: float, *, line: bool, explained: bool = True) -> Result:
    """A Result with a share of every loss, contention being won back."""
    unit = 128 if line else 1024
    launch, contention, parts = (ticks(makespan_us * share) for share in (0.02, -0.01, 0.05))
    exposed = ticks(makespan_us) - ticks(BOUND_US) - launch - contention - parts
    waterfall = Waterfall(unit, ticks(makespan_us), launch, contention, parts, exposed, ticks(BOUND_US))
    return Result(
        scenario=scenario.name,
        schedule=schedule(expression),
        unit_bytes=unit,
        line_bytes=128,
        clock_hz=2_100_000_000,
        outcome=RunOutcome.DONE,
        makespan_ticks=ticks(makespan_us),
        compute_ticks=ticks(makespan_us * 0.8),
        comm_ticks=ticks(makespan_us * 0.7),
        union_ticks=ticks(makespan_us),
        dil=1.1,
        cil=1.05,
        waterfall=waterfall if explained else None,
        line_hops=1,
        line_hops_represented=scenario.num_ranks,
        traffic=Traffic(1, 1, 1, 1, 0, 0),
        utilization=Utilization(0.5, 0.5, 0.5, 0.5, 0.5),
        num_ranks=scenario.num_ranks,
        ranks_simulated=1,
        not_alike=None,
        core="hand",
        timeline=timeline(makespan_us, 1 if expression == SERIAL else 4, scenario.num_ranks),
        servers=(),
        critical_path=(),
        deadlock=(),
    )


def candidate(expression: str, predicted_us: float | None, simulated_us: float | None, unit: int | None) -> Candidate:
    """A candidate; serial by its name."""
    simulated = None if simulated_us is None else ticks(simulated_us)
    origin = ScheduleOrigin.SERIAL if expression.startswith("serial") else ScheduleOrigin.TEMPLATE
    return Candidate(expression, None, schedule(expression), origin, predicted_us, simulated, unit)


def advice(scenario: OpCase, verdict: Verdict = Verdict.OVERLAP) -> Advice:
    """Five candidates: the best and serial by line, two in packets, one predicted."""
    best, serial = candidate(BEST, 101.0, 100.0, 128), candidate(SERIAL, 118.0, 117.0, 128)
    overlap = verdict in (Verdict.OVERLAP, Verdict.USE)
    recommended = best if overlap else serial
    others = (candidate(TIE, 103.0, 102.0, 1024), candidate(LONG, None, 110.0, 1024), serial)
    return Advice(
        scenario=Scenario.of_one(scenario),
        verdict=verdict,
        recommended=recommended,
        serial=serial,
        speedup=serial.best_us / recommended.best_us,
        candidates=(best, *others, candidate(UNSEEN, 120.0, None, None)),
        num_feasible=5,
        bound=Bound(ticks(BOUND_US), "links", ()),
        result=result(scenario, recommended.expression, recommended.best_us, line=True),
        serial_result=result(scenario, SERIAL, 117.0, line=True),
        ties=(TIE,) if overlap else (),
        confidence=Confidence.HIGH if overlap else Confidence.LOW,
        confidence_reason="the GEMM profile of MI300X is validated against measurements, and the difference is above "
        "what the profile resolves (3%)",
        reasons=(
            "Run one after the other, 52.0 us of communication and 65.0 us of compute leave 44% of the time without "
            "compute.",
            f"{BEST} hides 78% of its communication; 20.0 us stay exposed.",
            "No schedule can take less than 80.0 us (links): at most 1.46x over serial.",
        ),
        marks=("assumed, not measured: MI300X.dma.setup, MI300X.launch.kernel, xgmi.latency",),
        timing=Timing(0.0, 0.0, 0.0, 0.0),
    )


@dataclass
class FakeStages:
    """Stages that answer at once, unless a gate is given that they wait at; they count what they are asked."""

    scenarios: tuple[OpCase, ...]
    verdict: Verdict = Verdict.OVERLAP
    failure: Callable[[], Exception] | None = None
    advice_gate: Event | None = None
    simulation_gate: Event | None = None
    outcome: RunOutcome = RunOutcome.DONE
    explains: bool = True
    partial: tuple[Advice, ...] = ()
    stopped: Event = field(default_factory=Event)
    compiled: list[Settings] = field(default_factory=list)
    simulated: list[str] = field(default_factory=list)

    def backend(self) -> Backend:
        """The stages as the session takes them."""
        return Backend(self.compile, self.recommend, self.simulate)

    def compile(self, path: Path, settings: Settings) -> Compiled:
        """The scenarios, whatever the file says."""
        self.compiled.append(tuple(settings))
        return Compiled(str(path), tuple(map(Scenario.of_one, self.scenarios)), (), (), ())

    def recommend(
        self, scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice:
        """The advice made by hand, after those of ``partial``."""
        if self.failure is not None:
            raise self.failure()
        for each in self.partial:
            answered(each)
        progress("simulate", 3, 10)
        if self._waits(self.advice_gate, should_stop):
            raise Cancelled
        return advice(scenario.case, self.verdict)

    def simulate(self, scenario: OpCase, plan: OpPlan, bound: int | None, should_stop: ShouldStop) -> Result:
        """A result of 105 us."""
        self.simulated.append(plan.expression)
        cancelled = self._waits(self.simulation_gate, should_stop)
        found = result(scenario, plan.expression, 105.0, line=False, explained=self.explains and bound is not None)
        return with_outcome(found, RunOutcome.CANCELLED if cancelled else self.outcome)

    def _waits(self, gate: Event | None, should_stop: ShouldStop) -> bool:
        while gate is not None and not gate.wait(0.01):
            if should_stop():
                self.stopped.set()
                return True
        return False


def with_outcome(found: Result, outcome: RunOutcome) -> Result:
    """The same result with another end."""
    return replace(found, outcome=outcome)


def two_workloads() -> tuple[OpCase, ...]:
    """An AG+GEMM and a GEMM+RS; what is shown of the GPU stays as it is, whatever is measured later."""
    gpu = scenarios.mi300x()
    gpu = replace(gpu, gemm=replace(gpu.gemm, resolution=Fraction("0.03")))
    return scenarios.ag_gemm(2048, 3584, 4096, gpu=gpu), scenarios.gemm_rs(2048, 4096, 3584, gpu=gpu)
