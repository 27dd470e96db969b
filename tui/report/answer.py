"""The answer: verdict, the gain at three levels, schedules, implementations and reasons."""

from collections.abc import Iterator

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...advisor.implementations.offers import Offer, Offers
from ...compiler.ir import TICKS_PER_US
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.quantities import bytes_text, ticks_text, us_text
from ..text.render import bound_sentence, legend, shown_candidates, threshold_sentence, verdict_sentence
from ..text.sensitivity import sensitivity_lines
from .markup import Markup, bullets, table, tag

VERDICT_WORDS = {Verdict.OVERLAP: "yes", Verdict.WORTH_TRYING: "worth trying", Verdict.SERIAL: "no"}


def headline(advice: Advice) -> Markup:
    """Return the verdict, the confidence, and what warns of the answer."""
    confidence = f"Confidence {advice.confidence.value}: {advice.confidence_reason}."
    said = [tag("p", verdict_sentence(advice), kind="verdict"), tag("p", confidence), bullets(advice.marks)]
    return tag("section", *said, kind=advice.verdict.value)


def levels(advice: Advice) -> Markup:
    """Return the gain at three levels: what there is, a kernel written for the plan, and what no schedule can beat."""
    cards = (_what_you_have(advice), _written_for_the_plan(advice), _what_none_beats(advice))
    return tag("div", *cards, kind="levels")


def _level(title: str, gain: str, *lines: str, kind: str = "") -> Markup:
    parts = [tag("p", line) for line in lines if line]
    return tag("div", tag("h3", title), tag("div", gain, kind="gain"), *parts, kind=f"level {kind}".strip())


def _what_you_have(advice: Advice) -> Markup:
    title, offers = "What you have", advice.offers
    best = None if offers is None else next(iter(offers.paying), None) or next(iter(offers.offers), None)
    if offers is None or best is None:
        time = f"{advice.baseline[:1].upper()}{advice.baseline[1:]}, {us_text(advice.serial.best_us)}"
        nothing = "no implementation with known costs overlaps this on this GPU"
        return _level(title, "1.00x", time, "" if advice.scenario.is_algorithm_choice else nothing)
    word = VERDICT_WORDS[best.promise.verdict]
    against = f"over {offers.library}" + ("" if offers.library_us is None else f", {us_text(offers.library_us)}")
    said = f"{best.name}, {us_text(best.us)}: {word}"
    return _level(title, f"{best.promise.speedup:.2f}x", said, against, _error(best), kind=best.promise.verdict.value)


def _error(offer: Offer) -> str:
    error = "error not measured" if offer.promise.error is None else f"predicted, ±{offer.promise.error:.0%}"
    return f"{error}, {offer.promise.outside}" if offer.promise.outside else error


def _written_for_the_plan(advice: Advice) -> Markup:
    chosen, interval = advice.recommended, advice.interval
    how = "predicted" if chosen.simulated_us is None else "simulated"
    said = f"{advice.name_of(chosen.expression)}, {us_text(chosen.best_us)} {how}"
    between = "" if interval is None else "between {:.2f}x and {:.2f}x with the error of such kernels".format(*interval)
    against = f"over {advice.baseline}, {us_text(advice.serial.best_us)}"
    title = "The best algorithm" if advice.scenario.is_algorithm_choice else "A kernel written for the plan"
    return _level(title, f"{advice.speedup:.2f}x", said, against, between, kind=advice.verdict.value)


def _what_none_beats(advice: Advice) -> Markup:
    title, bound, gap = "What no schedule can beat", advice.bound, advice.gap_to_bound
    if bound is None or gap is None:
        return _level(title, "-", "the bound was not computed")
    gain = advice.serial.best_us * TICKS_PER_US / bound.ticks
    return _level(
        title, f"{gain:.2f}x", f"{ticks_text(bound.ticks)}, bound by {bound.binding}", f"the plan is {gap:.1%} above it"
    )


def candidates(advice: Advice, top: int) -> Iterator[Markup]:
    """Yield the table of schedules that were simulated, the expressions behind short names, and ties."""
    shown = shown_candidates(advice, top)
    rows = [_candidate(advice, candidate) for candidate in shown]
    chosen = [place for place, each in enumerate(shown) if each.expression == advice.recommended.expression]
    head = ("", "schedule", "predicted us", "simulated us", "gain", "staging")
    yield table(head, rows, words=2, marked=chosen)
    yield tag("p", legend(advice, shown), kind="faint")
    names = [(advice.name_of(each.expression), each.expression) for each in shown]
    long = [tag("li", f"{name}: ", tag("code", expression)) for name, expression in names if name != expression]
    if long:
        yield tag("ul", *long)
    if advice.ties:
        ties = ", ".join(advice.name_of(tie) for tie in advice.ties)
        yield tag("p", f"The profile cannot tell these apart (within {advice.scenario.resolution:.0%}): {ties}.")


def _candidate(advice: Advice, candidate: Candidate) -> tuple[str, ...]:
    mark = "*" if candidate.expression == advice.recommended.expression else ""
    simulated, line = candidate.simulated_us, advice.scenario.gpu.line_bytes
    coarse = "" if candidate.unit_bytes == line else "~"
    staging = candidate.schedule.staging_bytes
    return (
        mark or ("=" if candidate.expression in advice.ties else ""),
        advice.name_of(candidate.expression),
        "-" if candidate.predicted_us is None else f"{candidate.predicted_us:.1f}",
        "-" if simulated is None else f"{coarse}{simulated:.1f}",
        f"{advice.serial.best_us / candidate.best_us:.2f}x",
        bytes_text(staging) if staging else "none",
    )


def implementations(found: Offers) -> Iterator[Markup]:
    """Yield the table of what can be switched on, and what has no prediction here."""
    rows = [
        (
            offer.name,
            VERDICT_WORDS[offer.promise.verdict],
            f"{offer.us:.1f}",
            f"{offer.promise.speedup:.2f}x",
            "-" if offer.promise.error is None else f"±{offer.promise.error:.0%}",
        )
        for offer in found.offers
    ]
    if rows:
        yield table(("implementation", "worth it", "us", f"over {found.library}", "error"), rows, words=2)
    yield bullets(f"{unknown.name}: {unknown.reason}" for unknown in found.unknown)


def reasons(advice: Advice) -> Iterator[Markup]:
    """Yield the reasons, the bound, and the threshold and sensitivity where they were asked for."""
    yield bullets(advice.reasons)
    yield tag("p", bound_sentence(advice))
    if advice.threshold is not None:
        yield tag("p", threshold_sentence(advice.threshold))
    if advice.sensitivity is not None:
        yield tag("h3", "Sensitivity")
        yield tag("pre", "\n".join(sensitivity_lines(advice.sensitivity, advice.short_names)))
