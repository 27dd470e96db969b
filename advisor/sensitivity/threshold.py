"""The number of rows at which the answer flips between overlap and serial, the rest of the scenario staying as it is.

Other numbers of rows get a short advice: the schedules that the scenario has, resized, of which the likely ones and
their variants are simulated. There is no search for bespoke schedules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import Cancelled, Choice, GraphScenario, Scenario
from ..answer.rule import finalists, overlap_pays
from ..candidates.advice import Threshold
from ..candidates.candidate import Candidate
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import simulate_shortlist, simulate_variants
from ..workers import Workers
from .resized import num_rows, resized_choices, with_rows

# Rows that are tried: twice or half as many again and again, then by bisection to this share of the rows.
LEAST_ROWS, MOST_ROWS = 16, 1 << 16
PRECISION = 1 / 16
# Overlapping schedules that are simulated at each number of rows, the most promising.
TOP = 8


def threshold_of(
    scenario: Scenario, candidates: Sequence[Candidate], pays: bool, pool: Workers | None
) -> Threshold | None:
    """Return where overlap begins or ceases to pay; None where rows cannot be changed, or nothing overlaps.

    ``pays`` is whether overlap pays in ``scenario``. Without a ``pool`` nothing is simulated.

    Raises
    ------
    Cancelled
        If the caller asked to stop.
    """
    rows = num_rows(scenario.workload)
    if rows is None or all(candidate.is_serial for candidate in candidates):
        return None
    search = _Search(scenario, rows, _structures(candidates), pool, {rows: pays})
    flip = search.flip()
    simulated = pool is not None
    if flip is None:
        return Threshold(None, pays, simulated, (min(search.verdicts), max(search.verdicts)))
    return Threshold(flip[1], search.verdicts[flip[1]], simulated, flip)


def _structures(candidates: Sequence[Candidate]) -> tuple[Choice, ...]:
    """Return the best choice of each structure; structures differ in more than the number of chunks."""
    best: dict[Choice, Choice] = {}
    for choice in (candidate.choice for candidate in candidates if candidate.choice is not None):
        best.setdefault(replace(choice, chunks=1, parts=(), slices=(), columns=()), choice)
    return tuple(best.values())


@dataclass(slots=True)
class _Search:
    """A search around a scenario of ``rows`` rows; ``verdicts`` are whether overlap pays, by rows."""

    scenario: Scenario
    rows: int
    structures: Sequence[Choice]
    pool: Workers | None
    verdicts: dict[int, bool] = field(default_factory=dict)

    def flip(self) -> tuple[int, int] | None:
        """Return rows close to each other with different verdicts, None if all that were tried agree."""
        pays = self.verdicts[self.rows]
        for outward in (self._fewer, self._more) if pays else (self._more, self._fewer):
            last = self.rows
            for rows in outward():
                if self._pays_at(rows) is not pays:
                    return self._bisected(min(last, rows), max(last, rows))
                last = rows
        return None

    def _fewer(self) -> Iterator[int]:
        rows = self.rows
        while (rows := self._round(rows / 2)) >= max(LEAST_ROWS, self.scenario.num_ranks):
            yield rows

    def _more(self) -> Iterator[int]:
        rows = self.rows
        while (rows := self._round(rows * 2)) <= MOST_ROWS:
            yield rows

    def _round(self, rows: float) -> int:
        """Round down to a multiple of the ranks that is at most the precision."""
        ranks = self.scenario.num_ranks
        grain = ranks << max(0, int(rows * PRECISION / ranks).bit_length() - 1)
        return int(rows) // grain * grain

    def _bisected(self, low: int, high: int) -> tuple[int, int]:
        below = self._pays_at(low)
        while low < (middle := self._round((low + high) / 2)) < high:
            low, high = (middle, high) if self._pays_at(middle) is below else (low, middle)
        return low, high

    def _pays_at(self, rows: int) -> bool:
        if rows not in self.verdicts:
            scenario = with_rows(self.scenario, rows)
            question = GraphScenario.of_one(scenario)
            self.verdicts[rows] = overlap_pays(question, finalists(question, self._candidates(scenario)))
        return self.verdicts[rows]

    def _candidates(self, resized: Scenario) -> list[Candidate]:
        """Return the candidates with other rows; simulated are the likely ones, if there is a pool."""
        choices = (form for choice in self.structures for form in resized_choices(self.scenario, resized, choice))
        candidates = predicted_candidates(resized, tuple(choices))
        if self.pool is None:
            return candidates
        candidates = simulate_shortlist(self.pool, resized, candidates, TOP, _untold)
        candidates = simulate_variants(self.pool, resized, candidates, _untold)
        if self.pool.stopped:
            raise Cancelled
        return candidates


def _untold(stage: str, done: int, total: int) -> None:
    """Progress of an inner stage, which nobody sees."""
