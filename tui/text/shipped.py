"""The shipped implementations beside a schedule: which is nearest to it, and what each promises."""

from collections.abc import Iterator

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import Implementation
from ...compiler.planning.expression import expression_of
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.implementation import shipped_implementations

_WORDS = {Verdict.OVERLAP: "pays", Verdict.WORTH_TRYING: "worth trying", Verdict.SERIAL: "does not pay"}


def shipped_lines(advice: Advice, candidate: Candidate) -> Iterator[str]:
    """Yield a sentence for each known implementation, those with the candidate's template first, then the fastest."""
    offers = advice.offers
    if offers is None or not offers.offers:
        yield "No shipped implementation is known for this GPU, this type and this pattern."
        return
    methods = {implementation.name: implementation for implementation in _known(advice)}
    told = []
    for place, offer in enumerate(offers.offers):
        method = methods[offer.name].method(advice.case.workload.pattern)
        assert method is not None, "an offer has a predicted time"
        alike = candidate.choice is not None and candidate.choice.template == method.choice.template
        gain = f"{_WORDS[offer.promise.verdict]}, {offer.promise.speedup:.2f}x over {offers.library}"
        how = f"it works as {expression_of(method.choice)}{', the template of this schedule' if alike else ''}"
        told.append((not alike, place, f"{offer.name}: {gain}; {how}."))
    yield from (sentence for _, _, sentence in sorted(told))


def _known(advice: Advice) -> tuple[Implementation, ...]:
    return (*advice.scenario.explore.implementations, *shipped_implementations(advice.scenario.system))
