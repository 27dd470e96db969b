"""A small layer on screen: its schedules are really simulated, once, and handed out as the stages of the session."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from time import sleep

from magus.advisor.candidates.advice import Advice
from magus.advisor.candidates.candidate import Candidate
from magus.advisor.layers.declared import simulated_candidate, simulated_schedules
from magus.compiler.ir import (
    Cancelled,
    OpCase,
    Progress,
    Scenario,
    Settings,
    ShouldStop,
)
from magus.compiler.pipeline import Compiled
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.app.session.backend import Backend
from tests.helpers.scenarios.graph_runs import TEXT, small_graph
from tests.helpers.tui import fakes

LARGE_TEXT = TEXT.replace("param M = 1024", "param M = 4096")
"""The size at which overlap pays."""

BEST, SERIAL, WHOLE = "pairs", "serial", "whole"
POLL_S = 0.01


def layer() -> Scenario:
    """The graph, on GPUs whose library is not known, so that the baseline is serial, by a profile that resolves 1 %."""
    scenario = small_graph(LARGE_TEXT)
    gpu = scenario.gpu
    gpu = replace(gpu, collectives=None, gemm=replace(gpu.gemm, resolution=Fraction(1, 100)))
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


@cache
def answer() -> Advice:
    """All of its schedules, simulated."""
    return simulated_schedules(layer())


def early() -> Advice:
    """What would be answered when only serial is simulated."""
    done, serial = answer(), answer().serial
    others = tuple(_unsimulated(each) for each in done.candidates if each is not serial)
    return replace(
        done,
        candidates=(serial, *others),
        recommended=serial,
        speedup=1.0,
        verdict=Verdict.SERIAL,
        ties=(),
        reasons=(),
        interrupted=True,
    )


def _unsimulated(candidate: Candidate) -> Candidate:
    return replace(candidate, result=None, simulated_ticks=None)


def with_a_tie() -> Advice:
    """An answer that recommends what is a little slower."""
    done = answer()
    return replace(done, recommended=done.serial, speedup=1.0, verdict=Verdict.SERIAL, ties=(BEST,))


def with_an_estimate() -> Advice:
    """An answer in which the layers of one schedule show no period."""
    done = answer()
    found = tuple(
        replace(each, result=replace(each.result, is_estimate=True))
        if each.expression == WHOLE and each.result is not None
        else each
        for each in done.candidates
    )
    return replace(done, candidates=found)


def with_problem() -> Advice:
    """An answer in which one schedule cannot be simulated."""
    done = answer()
    wrong = [
        replace(_unsimulated(each), problem="not carried out: MGS503: a circle") if each.expression == WHOLE else each
        for each in done.candidates
    ]
    return replace(done, candidates=tuple(wrong))


@dataclass
class GraphStages:
    """Stages of a file with the layer, behind ``pairs`` if there are any."""

    pairs: tuple[OpCase, ...] = ()
    partial: tuple[Advice, ...] = ()
    final: Callable[[], Advice] = answer
    stops: bool = False

    def backend(self) -> Backend:
        """The stages as the session takes them."""
        of_pairs = fakes.FakeStages(self.pairs)
        return Backend(
            self.compile,
            self.recommend,
            of_pairs.simulate,
            sweep=self.sweep,
            simulate_graph=self.simulate_graph,
        )

    def compile(self, path: Path, settings: Settings) -> Compiled:
        """The scenarios, whatever the file says."""
        return Compiled(str(path), (*map(Scenario.of_one, self.pairs), layer()), (), (), ())

    def recommend(
        self, scenario: Scenario, progress: Progress, should_stop: ShouldStop, reported: Callable[[Advice], None]
    ) -> Advice:
        """What was simulated, after the answers of ``partial``; until it is stopped, if it ``stops``."""
        if scenario.only_case is not None:
            return fakes.FakeStages(self.pairs).recommend(scenario, progress, should_stop, reported)
        for each in self.partial:
            reported(each)
        while self.stops:
            if should_stop():
                raise Cancelled
            sleep(POLL_S)
        return self.final()

    def simulate_graph(self, scenario: Scenario, candidate: Candidate, should_stop: ShouldStop) -> Candidate:
        """One schedule, really."""
        return simulated_candidate(scenario, candidate, should_stop)

    def sweep(self, scenario: Scenario, simulated: bool, should_stop: ShouldStop) -> Advice:
        """The same at each value."""
        return answer()
