"""Advice with and without learned proposals, on drawn scenarios that no model was fitted to.

Every scenario is answered by the full advice with proposals, by the full advice without, and without simulation. An
answer has two regrets: of the fastest candidate, which is what the search finds, and of the recommended schedule, the
simplest of those that the profile cannot tell from the fastest. Times are simulated, at one granularity; regrets are
over the fastest schedule of all answers. Counts are of simulations that search, not of those that confirm.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

from magus.advisor import AdviceOptions, Advisor
from magus.advisor.candidates.candidate import Candidate
from magus.advisor.candidates.shortlist import shortlist_unit
from magus.advisor.training.families import draw
from magus.advisor.work import workers as simulations
from magus.compiler.ir import OpCase, Scenario
from magus.simcore import simulate_op

from .harness.report import Figure, parser_of, tell

SEED, SCENARIOS = 2, 30
FULL, AT_ONCE = AdviceOptions(), AdviceOptions(verify=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """Simulated ticks of the fastest candidate and of the recommended one, number of simulations, CPU seconds."""

    fastest: int
    recommended: int
    simulations: int
    seconds: float


def answer(advisor: Advisor, scenario: OpCase, options: AdviceOptions) -> Answer:
    """Answer ``scenario`` in this process."""
    counted: list[object] = []

    def run_job(job: simulations.SimulationJob, should_stop: object = None) -> object:
        if job.explain_bytes is None:
            counted.append(job)
        return original(job, should_stop)  # type: ignore[arg-type]

    original = simulations.run_job
    with mock.patch.object(simulations, "run_job", run_job):
        since = time.process_time()
        advice = advisor.recommend(Scenario.of_one(scenario), options)
        seconds = time.process_time() - since
    fastest = min(advice.candidates, key=lambda candidate: candidate.best_us)
    return Answer(_ticks(scenario, fastest), _ticks(scenario, advice.recommended), len(counted), seconds)


def _ticks(scenario: OpCase, candidate: Candidate) -> int:
    unit = shortlist_unit(scenario, candidate.schedule)
    return simulate_op(scenario, candidate.schedule, unit_bytes=unit).makespan_ticks


def figures(seed: int, count: int) -> Iterator[Figure]:
    """Yield the figures of all ways to answer."""
    learned = Advisor.load()
    ways = (
        ("full advice", learned, FULL),
        ("without proposals", Advisor(), FULL),
        ("no simulation", learned, AT_ONCE),
        ("no simulation, without proposals", Advisor(), AT_ONCE),
    )
    answers: dict[str, list[Answer]] = {name: [] for name, _, _ in ways}
    for idx in range(count):
        scenario = draw(seed, idx).scenario
        for name, advisor, options in ways if idx % 2 else ways[::-1]:  # the first fills caches
            answers[name].append(answer(advisor, scenario, options))
    best = [min(min(each.fastest, each.recommended) for each in row) for row in zip(*answers.values(), strict=True)]
    for name, found in answers.items():
        yield from _regrets(f"{name}: fastest", [each.fastest for each in found], best)
        yield from _regrets(f"{name}: recommended", [each.recommended for each in found], best)
        yield Figure(f"{name}: simulations", statistics.fmean(each.simulations for each in found), "", "lower")
        yield Figure(f"{name}: CPU, median", statistics.median(each.seconds for each in found), "s", "lower")


def _regrets(name: str, ticks: Sequence[int], best: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of how much longer ``ticks`` are than ``best``, over scenarios."""
    regrets = [each / least - 1 for each, least in zip(ticks, best, strict=True)]
    yield Figure(f"{name}: regret, mean", 100 * statistics.fmean(regrets), "%", "lower")
    yield Figure(f"{name}: regret, largest", 100 * max(regrets), "%", "lower")
    yield Figure(f"{name}: within 3 %", 100 * statistics.fmean(each <= 0.03 for each in regrets), "%", "higher")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--scenarios", type=int, default=SCENARIOS)
    parser.add_argument("--seed", type=int, default=SEED)
    requested = parser.parse_args(argv)
    tell(figures(requested.seed, requested.scenarios), as_json=requested.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
