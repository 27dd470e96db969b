"""The answer in one line: what can be switched on today, what a kernel reaches, and what no schedule beats."""

from collections.abc import Iterator

from ...compiler.ir import TICKS_PER_US
from ...compiler.resolve.expect.expectation import Verdict
from ..candidates.advice import Advice


def headline_of(advice: Advice) -> str:
    """Return for instance ``flux 1.24x; torch_async_tp: no, 0.70x; a kernel for this plan up to 1.31x; bound 1.50x``.

    Gains of implementations are over the library with its call, others over the baseline. Empty where there is nothing
    to overlap.
    """
    case = advice.scenario.pair
    if case is None or case.is_algorithm_choice or case.workload.moved is None:
        return ""
    return "; ".join(_levels(advice))


def _levels(advice: Advice) -> Iterator[str]:
    if advice.offers is not None:
        for offer in advice.offers.offers:
            promise = offer.promise
            word = {Verdict.SERIAL: "no, ", Verdict.WORTH_TRYING: "worth trying, "}.get(promise.verdict, "")
            yield f"{offer.name}{':' if word else ''} {word}{promise.speedup:.2f}x"
    is_baseline = advice.recommended.expression == advice.serial.expression
    best = _fastest_other_us(advice) if is_baseline else advice.recommended.best_us
    if best is not None:
        which = "the fastest other plan" if is_baseline else "this plan"
        yield f"a kernel for {which} up to {advice.serial.best_us / best:.2f}x"
    if advice.bound is not None:
        yield f"bound {advice.serial.best_us * TICKS_PER_US / advice.bound.ticks:.2f}x"


def _fastest_other_us(advice: Advice) -> float | None:
    """The time of the fastest simulated schedule but the baseline, None if there is no other."""
    others = (one for one in advice.candidates if one.expression != advice.serial.expression)
    return min((one.best_us for one in others if one.simulated_ticks is not None), default=None)
