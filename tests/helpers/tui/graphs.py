"""A small layer on screen: its schedules are really simulated, once, and handed out as the stages of the session."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from magus.advisor.graphs.answer import GraphAnswer, ShownSchedule
from magus.advisor.graphs.schedules import simulated_candidate, simulated_schedules
from magus.compiler.ir import Cancelled, GraphChoice, GraphScenario, Progress, Scenario, Settings, ShouldStop
from magus.compiler.pipeline import Compiled
from magus.tui.app.session.backend import Backend
from magus.tui.app.session.finding import Finding, Subject
from tests.helpers.scenarios.graph_runs import TEXT, small_graph
from tests.helpers.tui import fakes

LARGE_TEXT = TEXT.replace("param M = 1024", "param M = 4096")
"""The size at which overlap pays."""

BEST, SERIAL, WHOLE = "pairs", "serial", "whole"


def layer() -> GraphScenario:
    """The graph."""
    return small_graph(LARGE_TEXT)


@cache
def answer() -> GraphAnswer:
    """All of its schedules, simulated."""
    return simulated_schedules(layer())


def early() -> GraphAnswer:
    """What would be answered when only serial is simulated."""
    done, serial = answer(), answer().serial
    others = tuple(replace(each, result=None) for each in done.candidates if each is not serial)
    return replace(done, candidates=(serial, *others), recommended=serial, reasons=(), interrupted=True)


def with_a_tie() -> GraphAnswer:
    """An answer that recommends what is a little slower."""
    return replace(answer(), recommended=answer().serial)


def with_an_estimate() -> GraphAnswer:
    """An answer in which the layers of one schedule show no period."""
    done = answer()
    found = tuple(
        replace(each, result=replace(each.result, estimated=True))
        if each.expression == WHOLE and each.result is not None
        else each
        for each in done.candidates
    )
    return replace(done, candidates=found)


def with_problem() -> GraphAnswer:
    """An answer in which one schedule cannot be simulated."""
    done = answer()
    wrong = [
        replace(each, result=None, problem="not carried out: MGS503: a circle") if each.expression == WHOLE else each
        for each in done.candidates
    ]
    return replace(done, candidates=tuple(wrong))


@dataclass
class GraphStages:
    """Stages of a file with the layer, behind ``pairs`` if there are any."""

    pairs: tuple[Scenario, ...] = ()
    partial: tuple[GraphAnswer, ...] = ()
    final: Callable[[], GraphAnswer] = answer
    stops: bool = False

    def backend(self) -> Backend:
        """The stages as the session takes them."""
        of_pairs = fakes.FakeStages(self.pairs)
        return Backend(
            self.compile,
            of_pairs.recommend,
            of_pairs.simulate,
            sweep=self.sweep,
            recommend_graph=self.recommend_graph,
            simulate_graph=self.simulate_graph,
        )

    def compile(self, path: Path, settings: Settings) -> Compiled:
        """The scenarios, whatever the file says."""
        return Compiled(str(path), self.pairs, (), (), (), graphs=(layer(),))

    def recommend_graph(
        self, scenario: GraphScenario, progress: Progress, should_stop: ShouldStop, told: Callable[[GraphAnswer], None]
    ) -> GraphAnswer:
        """What was simulated, after the answers of ``partial``; until it is stopped, if it ``stops``."""
        for each in self.partial:
            told(each)
        while self.stops:
            if should_stop():
                raise Cancelled
        return self.final()

    def simulate_graph(self, scenario: GraphScenario, choice: GraphChoice, should_stop: ShouldStop) -> ShownSchedule:
        """One schedule, really."""
        return simulated_candidate(scenario, choice, should_stop)

    def sweep(self, scenario: Subject, simulated: bool, should_stop: ShouldStop) -> Finding:
        """The same at each value."""
        return answer()
