"""No time that an answer shows is below the bound: what would be is left out, and a note says so.

An estimate is told as the bound where it is below it. The closed form of the library and implementations have rates of
their own, which may be those of another machine; of a simulated time below the bound either is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...compiler.ir import TICKS_PER_US
from ...compiler.text.quantities import us_text
from ..candidates.candidate import Candidate
from ..implementations.offers import Offers


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """Compares shown times with the lower bound, in ticks."""

    ticks: int

    def is_below(self, us: float) -> bool:
        """Whether a time is less than the bound."""
        return us * TICKS_PER_US < self.ticks * (1 - 1e-9)

    def sentence(self, name: str, us: float) -> str:
        """The note on something whose time is below the bound."""
        bound = us_text(self.ticks / TICKS_PER_US)
        return f"{name} is left out: its time, {us_text(us)}, is below the bound, {bound}, so that either is wrong"

    def below(self, candidates: Sequence[Candidate]) -> dict[str, str]:
        """Return a note on each candidate whose time is below the bound, by expression; estimates are raised."""
        return {
            one.expression: self.sentence(one.expression, one.best_us)
            for one in candidates
            if self.is_below(one.best_us) and (one.is_library or not one.is_estimate)
        }

    def raised(self, candidate: Candidate) -> Candidate:
        """Return a candidate whose estimate is no less than the bound."""
        us, interval, least = candidate.predicted_us, candidate.interval_us, self.ticks / TICKS_PER_US
        if us is None or us >= least:
            return candidate
        interval = interval and (max(least, interval[0]), max(least, interval[1]))
        return replace(candidate, predicted_us=least, interval_us=interval)

    def offers(self, found: Offers | None) -> tuple[Offers | None, list[str]]:
        """The same of implementations; without the library there is nothing to compare them with."""
        if found is None or found.library_us is None:
            return found, []
        if self.is_below(found.library_us):
            return None, [self.sentence(found.library, found.library_us)]
        below = [offer for offer in found.offers if self.is_below(offer.us)]
        kept = tuple(offer for offer in found.offers if offer not in below)
        return replace(found, offers=kept), [self.sentence(offer.name, offer.us) for offer in below]
