"""Advice and results as plain text for terminals of 40 columns or more."""

from collections.abc import Collection, Iterator, Sequence

from ...advisor.answer.explain import headline_of
from ...advisor.candidates.advice import Advice, Threshold
from ...advisor.candidates.candidate import Candidate
from ...advisor.implementations.offers import Offers, Order
from ...advisor.implementations.predict import MIN_GAIN, Promise
from ...compiler.ir import OF_LAYERS
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.units import ticks_text, us_text
from .door import bullet, hanging, table, wrapped
from .next_steps import MOST_SPELLED, NextStep, next_lines
from .ops import (
    OTHER_LAYERS,
    block_lines,
    block_of_schedule,
    op_advice_lines,
    question_line,
    searched_sentence,
)
from .result import waterfall_lines
from .sweep import draws_lines, sensitivity_lines

OFFER_VERDICTS = {
    Verdict.OVERLAP: ("+", "yes"),
    Verdict.WORTH_TRYING: ("?", "worth trying"),
    Verdict.SERIAL: ("-", "no"),
}
"""The mark and the words for each verdict on an implementation."""


def advice_text(advice: Advice, top: int, *, how: bool = False, todo: Sequence[NextStep] = ()) -> str:
    """Return the whole answer: verdict, marks, ranked table, bound, ties, reasons, waterfall, and what ``todo`` next.

    ``how`` adds how to carry the recommended schedule out.
    """
    lines = _advice_lines(advice, top, how, [word for step in todo for word in step.words])
    return "\n".join([*lines, *(["", "Next:", *next_lines(todo)] if todo else [])])


MOST_STEPS = 3
"""Next steps of an answer in brief; how a schedule is carried out is an option that it names."""


def brief_text(advice: Advice, *, how: bool = False, todo: Sequence[NextStep] = ()) -> str:
    """Return the answer in brief: verdict, what failed, the first reason, next steps, and what was asked for besides.

    The gains side by side are said where something can be switched on: a plan's own is in the verdict.
    """
    lines = list(_verdict_lines(advice, levels=bool(advice.offers and advice.offers.offers)))
    marks = [mark for mark in advice.marks if mark in advice.notes]
    others = [mark for mark in advice.marks if mark not in advice.notes]
    for mark in [*marks, *others[:1]]:
        lines += bullet("!", mark)
    lines += hanging(advice.reasons[0], 2, "Why: ") if advice.reasons else []
    if how:
        lines += ["", *_how_lines(advice)]
    extra = list(_requested_extras(advice))
    lines += ["", *extra] if extra else []
    steps = [step for step in todo if step.words[-1] != "--how"]
    lines += ["", "Next:", *next_lines(steps[:MOST_STEPS])]
    more = f"{len(others) - 1} more mark{'s' if others[2:] else ''}, " if others[1:] else ""
    how_hint = "" if how else "--how: step by step; "
    lines += bullet("#", f"{how_hint}--full: {more}schedules, bound, losses, reasons", "#")
    return "\n".join(lines)


def _verdict_lines(advice: Advice, *, levels: bool = True) -> Iterator[str]:
    """Yield the question, the verdict and how sure it is; with ``levels`` all gains side by side."""
    yield from wrapped(question_line(advice.scenario))
    if advice.scenario.workload.about:
        yield from wrapped(advice.scenario.workload.about)
    yield ""
    yield from wrapped(verdict_sentence(advice))
    what = advice.what_of(advice.recommended)
    if what:
        yield from wrapped(f"That is: {what}.")
    if levels and headline_of(advice):
        yield from wrapped(f"Over {advice.baseline_text}: {headline_of(advice)}.")
    yield from wrapped(f"Confidence {advice.confidence.value}: {advice.confidence_reason}.")


def _how_lines(advice: Advice) -> Iterator[str]:
    """Yield how to carry the recommended schedule out."""
    from ...advisor.how.parts import how_of_plan  # who does not ask how does not wait for it
    from .handover import plan_lines

    name, plan = advice.name_of(advice.recommended.expression), advice.plan_of(advice.recommended)
    yield from plan_lines(how_of_plan(advice.scenario.system, plan), name)


def _advice_lines(advice: Advice, top: int, how: bool, spelled: Collection[str]) -> Iterator[str]:
    """Yield the lines of ``advice_text``; expressions that are ``spelled`` elsewhere are not said again."""
    yield from _verdict_lines(advice)
    if advice.searched:
        yield from wrapped(searched_sentence(advice))
    for mark in advice.marks:
        yield from bullet("!", mark)
    yield ""
    if how:
        yield from _how_lines(advice)
        yield ""
    yield from candidate_table(advice, top)
    yield from _spelled_names(advice, top, spelled)
    yield ""
    if advice.offers is not None:
        yield from implementation_lines(advice.offers)
        yield ""
    yield from _facts(advice)
    if advice.ops:
        yield ""
        yield from op_advice_lines(advice)
    yield ""
    yield "Why:"
    for reason in advice.reasons:
        yield from bullet("-", reason)
    if advice.result is not None and advice.result.waterfall is not None:
        yield ""
        yield from waterfall_lines(advice.result.waterfall)
    block = block_of_schedule(advice)
    if block:
        yield ""
        yield from block_lines(block)


def _facts(advice: Advice) -> Iterator[str]:
    """Yield the bound, ties, and what was asked for besides."""
    yield from wrapped(bound_sentence(advice))
    if advice.ties:
        resolution = advice.scenario.resolution
        yield from wrapped(f"Ties (within {resolution:.0%}, more than the profile can tell apart):")
        for tie in advice.ties:
            yield from bullet("=", advice.name_of(tie))
    yield from _requested_extras(advice)


def _requested_extras(advice: Advice) -> Iterator[str]:
    """Yield the threshold, the sensitivity and the draws of the routing, where they were asked for."""
    if advice.threshold is not None:
        yield from wrapped(threshold_sentence(advice.threshold))
    if advice.sensitivity is not None:
        yield from sensitivity_lines(advice.sensitivity, advice.short_names)
    if advice.draws is not None:
        yield from draws_lines(advice.draws, advice.short_names)


def verdict_sentence(advice: Advice) -> str:
    """Return the verdict, behind an implementation that is faster than what is recommended."""
    offer, found = advice.faster_offer, advice.offers
    if offer is None or found is None or found.library_us is None:
        return _verdict(advice)
    word = "SWITCH ON" if offer.promise.verdict is Verdict.OVERLAP else "WORTH TRYING"
    against = f"{us_text(offer.us)} against {us_text(found.library_us)} by {found.library}"
    error = offer.promise.error
    sure = "; its error was not measured" if error is None else f", +-{error:.0%}"
    return f"{word}: {offer.name}. {against}, {offer.promise.speedup:.2f}x faster{sure}. Else {_verdict(advice)}"


def _verdict(advice: Advice) -> str:
    """The verdict on schedules; for a collective alone, the algorithm to use."""
    if advice.scenario.is_algorithm_choice:
        return _which_algorithm(advice)
    name = advice.recommended_text
    serial, best = us_text(advice.serial.best_us), us_text(advice.recommended.best_us)
    against = f"{best} against {serial} {advice.against}, {advice.speedup:.2f}x faster{promise_text(advice)}."
    if advice.verdict is Verdict.OVERLAP:
        return f"OVERLAP: use {name}. {against}"
    if advice.promise is not None and advice.verdict is Verdict.WORTH_TRYING:
        return f"WORTH TRYING: {name}. {against[:-1]}; {why_tried(advice.promise)}."
    if advice.recommended.expression != advice.serial.expression:
        return f"SERIAL: {advice.why_serial}. Use {name}: {against}"
    return f"SERIAL: {advice.why_serial}. Use {name}, {serial}."


def promise_text(advice: Advice) -> str:
    """Return what a kernel for the schedule promises; empty without a promise."""
    promise = advice.promise
    how = "estimated" if advice.recommended.is_estimate or advice.serial.is_estimate else "simulated"
    return "" if promise is None else f" as {how}; as a kernel {promise.speedup:.2f}x{interval_text(promise)}"


def interval_text(promise: Promise) -> str:
    """Return the speedups that the error leaves possible, in brackets."""
    return "" if promise.interval is None else " ({:.2f}x to {:.2f}x)".format(*promise.interval)


def calls_text(promise: Promise) -> str:
    """Return the speedups in a graph and where the host is slow, if they differ: ``1.25x in a graph, ...``."""
    where = ((promise.in_graph, "in a graph"), (promise.on_host, "where the GPU waits for the host"))
    differ = [(each, text) for each, text in where if each is not None and abs(each / promise.speedup - 1) > MIN_GAIN]
    return ", ".join(f"{each:.2f}x {text}" for each, text in differ)


def why_tried(promise: Promise) -> str:
    """Return why a gain is no promise."""
    if promise.outside or promise.error is None:
        return promise.outside or "the error of such predictions was not measured"
    within = f"that is within the error of such kernels (+-{promise.error:.0%})"
    if promise.by_call[0] <= 1 + promise.error:
        return within
    return f"{within} where copies slow its GEMMs by up to {promise.slower:.0%}"


def implementation_lines(found: Offers) -> Iterator[str]:
    """Yield what can be switched on today."""
    library = "" if found.library_us is None else f", over {found.library}, {us_text(found.library_us)}"
    yield from wrapped(f"What you can switch on today{library}:")
    for offer in found.offers:
        promise = offer.promise
        mark, word = OFFER_VERDICTS[promise.verdict]
        error = "error not measured" if promise.error is None else f"+-{promise.error:.0%}"
        outside = "".join(f", {each}" for each in (promise.outside, calls_text(promise)) if each)
        on = offer.about if offer.order is None else settings_text(offer.order)
        text = f"{offer.name} {promise.speedup:.2f}x ({error}{outside}), {us_text(offer.us)}: {word}"
        text += f"; {on}" if on else ""
        yield from bullet(mark, text)
    for unknown in found.unknown:
        yield from bullet("!", f"{unknown.name}: {unknown.reason}")


def settings_text(order: Order) -> str:
    """Return what is switched on for a whole layer: ops by method, and the flags beside them."""
    of_methods: dict[str, list[str]] = {}
    for each in order.table.settings:
        splits = f"({each.num_splits})" if each.num_splits else ""
        of_methods.setdefault(f"{each.method}{splits}", []).append(each.layer)
    said = [f"{method} {', '.join(dict.fromkeys(names))}" for method, names in of_methods.items()]
    said += [flag for flag in order.table.flags if flag.startswith("--disable")]
    return "; ".join(said) or order.about


def bound_sentence(advice: Advice) -> str:
    """Return the lower bound and the gap of the answer to it."""
    bound, gap = advice.bound, advice.gap_to_bound
    if bound is None or gap is None:
        return "There is no lower bound: it was not computed."
    return (
        f"Lower bound {ticks_text(bound.ticks)}, bound by {bound.binding}; "
        f"the recommended schedule is {gap:.1%} above it."
    )


def threshold_sentence(threshold: Threshold) -> str:
    """Return from which rows of the GEMM on overlap pays, or ceases to."""
    fewer, more = threshold.tried
    how, name = "simulated" if threshold.simulated else "predicted", threshold.param or "M"
    if threshold.rows is None:
        pays = "pays at every" if threshold.pays_above else "does not pay at any"
        return f"Overlap {pays} {name} that was tried from {fewer:,} to {more:,} ({how})."
    pays, otherwise = ("pays", "not") if threshold.pays_above else ("does not pay", "it does")
    return f"Overlap {pays} from {name} = {threshold.rows:,} ({otherwise} at {fewer:,}; {how})."


def _which_algorithm(advice: Advice) -> str:
    """Return the algorithm to use for a collective alone, compared with the library if its time is known."""
    how = "" if advice.recommended.simulated_us is not None else " (predicted)"
    if advice.verdict is Verdict.LIBRARY:
        return f"LIBRARY: keep its choice, {us_text(advice.serial.best_us)}{how}; no other schedule is clearly faster."
    if advice.recommended.expression == advice.serial.expression:
        others = "no other schedule was ranked in time" if len(advice.candidates) == 1 and advice.interrupted else ""
        against = f"; {others or 'no other schedule is clearly faster'}"
    else:
        against = f", {advice.speedup:.2f}x faster than {advice.baseline_text}, {us_text(advice.serial.best_us)}"
    return f"Use {advice.name_of(advice.recommended.expression)}: {us_text(advice.recommended.best_us)}{how}{against}."


def shown_candidates(advice: Advice, top: int) -> Sequence[Candidate]:
    """Return the simulated candidates, or without simulation the ``top`` best predicted and the baseline."""
    hidden = _of_offers(advice)
    shown = [one for one in advice.candidates if one.simulated_ticks is not None and one.expression not in hidden]
    favourites = advice.candidates[:top]
    return shown or [*favourites, *([] if advice.serial in favourites else [advice.serial])]


def _of_offers(advice: Advice) -> set[str]:
    """The schedules of implementations, whose times are told with what their calls cost, but the recommended one."""
    offers = () if advice.offers is None else advice.offers.offers
    found = {each.order.schedule for each in offers if each.name in OF_LAYERS and each.order is not None}
    return found - {advice.recommended.expression}


def legend(advice: Advice, shown: Sequence[Candidate]) -> str:
    """Return what the marks in the table of the ``shown`` candidates mean, and how many others there are."""
    hidden = _of_offers(advice) - {one.expression for one in shown}
    rest = sum(one.expression not in hidden for one in advice.candidates) - len(shown)
    others = f"{rest} more feasible schedules were" if rest > 1 else "1 more feasible schedule was"
    ruled_out = sum(one.least_ticks is not None for one in advice.candidates)
    why = f", {ruled_out} as the busiest link alone takes longer than the fastest" if ruled_out else ""
    return (
        f"* recommended, = tie, ~ simulated in packets, else in cache lines; gain over {advice.baseline_text}."
        f"{f' {others} not simulated{why}.' if rest else ''}"
    )


def _spelled_names(advice: Advice, top: int, spelled: Collection[str]) -> Iterator[str]:
    """Yield the expressions behind short names in the table, but those that fill pages."""
    for candidate in shown_candidates(advice, top):
        name = advice.name_of(candidate.expression)
        is_long = len(candidate.expression) > MOST_SPELLED
        if name != candidate.expression and not is_long and candidate.expression not in spelled:
            yield from hanging(f"{name.partition(' (')[0]} is {candidate.expression}", 2)
        if candidate.what and candidate.expression != advice.recommended.expression:
            yield from hanging(f"{name}: {candidate.what}", 2)


def candidate_cells(advice: Advice, candidate: Candidate) -> tuple[str, str, str, str]:
    """Return the name of a schedule, its predicted and its simulated time, and its gain."""
    simulated, is_line = candidate.simulated_us, candidate.unit_bytes == advice.scenario.gpu.line_bytes
    return (
        advice.name_of(candidate.expression),
        "-" if candidate.predicted_us is None else f"{candidate.predicted_us:.1f}",
        "-" if simulated is None else f"{'' if is_line and not candidate.is_estimate else '~'}{simulated:.1f}",
        f"{advice.serial.best_us / candidate.best_us:.2f}x",
    )


def candidate_table(advice: Advice, top: int) -> Iterator[str]:
    """Yield the table of ranked schedules."""
    shown = shown_candidates(advice, top)
    rows = [("", "schedule", "pred us", "sim us", "gain")]
    rows += [(_mark(advice, candidate), *candidate_cells(advice, candidate)) for candidate in shown]
    yield from table(rows)
    yield from wrapped(legend(advice, shown))
    estimated = [each.expression for each in shown if each.is_estimate and each.result is not None]
    if estimated:
        yield from wrapped(f"Layers of {', '.join(estimated)} show no period: {OTHER_LAYERS}.")
    if any(each.side_by_side for each in shown):
        yield from wrapped("! kernels share the SMs, to which no profile is fitted: never recommended")


def _mark(advice: Advice, candidate: Candidate) -> str:
    if candidate.expression == advice.recommended.expression:
        return "*"
    if candidate.side_by_side:
        return "!"
    return "=" if candidate.expression in advice.ties else " "
