"""How much work to spend on advice."""

from dataclasses import dataclass

from ..compiler.codes import Code
from ..compiler.request.errors import RequestError
from .bespoke.stage import DEFAULT_EVALUATIONS

DEFAULT_TOP = 8


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """How much work to spend on advice.

    Parameters
    ----------
    top
        How many schedules with the least estimates to simulate, beside the serial baseline and the declared ones; up to
        six fewer where they are estimated to be far behind proposals that were simulated.
    verify
        Whether to simulate at all. Without it times are predictions; where schedules can be proposed, the answer takes
        tenths of a second, and neither the space is enumerated nor the bound computed. A layer is simulated all the
        same, without small changes.
    bespoke
        How many plans with chunks of any size to estimate where templates overlap; 0 for none.
    workers
        Threads or processes for the simulations. Processes need a ``__main__`` that may be imported again; they are
        taken where there is no compiled core, or where ranks see different fabrics.
    within_s
        Seconds after which the advice is the best that was found until then, as in a ``should_stop``: what was found is
        not the same in every run. At least the baseline is ranked. None is no limit.
    threshold
        Whether to find the number of rows at which the answer flips, for one op. It takes about as long as the rest.
    sensitivity
        Whether to find the hardware numbers that change the answer, each 10 % lower or higher. It takes less than the
        rest; of several ops the numbers that the ops feel most are changed.

    Raises
    ------
    RequestError
        If a number cannot be.
    """

    top: int = DEFAULT_TOP
    verify: bool = True
    bespoke: int = DEFAULT_EVALUATIONS
    workers: int = 1
    within_s: float | None = None
    threshold: bool = False
    sensitivity: bool = False

    def __post_init__(self) -> None:
        for name, least in (("top", 0), ("bespoke", 0), ("workers", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise RequestError(Code.MGS307, name, f"{value!r:.40} is no whole number from {least} on")
        if self.within_s is not None and not (isinstance(self.within_s, int | float) and self.within_s >= 0):
            raise RequestError(Code.MGS307, "within_s", f"{self.within_s!r:.40} is no time in seconds")
