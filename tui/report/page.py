"""The page: sections in the order of the questions a reader has."""

from collections.abc import Iterator
from dataclasses import dataclass

from ... import __version__
from ...advisor.answer.answer import run_of_candidate
from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...advisor.implementations.offers import Offer, Offers
from ...advisor.policy.sweep import Sweep
from ...advisor.policy.table import SweepPoint
from ...advisor.steps.answer import StepAdvice
from ...advisor.steps.outcome import StepOutcome
from ...advisor.steps.plans import flags_of
from ...advisor.steps.search import SHOWN
from ...compiler.ir import TICKS_PER_US, JsonObject, Settings
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...compiler.text.units import bytes_text, seconds_text, ticks_text, us_text
from ...simcore import ShownRun
from ...simcore.shown_run import OpSummary, op_times
from ..drawing.step_svg import baseline_run, memory_svg, parts_of, step_svg
from ..drawing.svg import sweep_svg, waterfall_svg
from ..text.door import VERDICTS
from ..text.next_steps import NextStep
from ..text.ops import question_line, schedule_text
from ..text.render import (
    OFFER_VERDICTS,
    bound_sentence,
    calls_text,
    candidate_cells,
    legend,
    shown_candidates,
    threshold_sentence,
    verdict_sentence,
)
from ..text.step import counted_text, figures_of, question_of, table_of
from ..text.sweep import sensitivity_lines
from .shell import Markup, assumptions, bullets, footer, header, page_html, section, table, tag, timelines


def headline(advice: Advice) -> Markup:
    """Return the verdict, the confidence, and what warns of the answer."""
    confidence = f"Confidence {advice.confidence.value}: {advice.confidence_reason}."
    what = advice.what_of(advice.recommended)
    words = [tag("p", f"That is: {what}.")] if what else []
    said = [tag("p", verdict_sentence(advice), kind="verdict"), *words, tag("p", confidence), bullets(advice.marks)]
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
        time = f"{advice.baseline_text[:1].upper()}{advice.baseline_text[1:]}, {us_text(advice.serial.best_us)}"
        nothing = "no implementation with known costs overlaps this on this GPU"
        return _level(title, "1.00x", time, "" if advice.scenario.is_algorithm_choice else nothing)
    _, word = OFFER_VERDICTS[best.promise.verdict]
    against = f"over {offers.library}" + ("" if offers.library_us is None else f", {us_text(offers.library_us)}")
    said = f"{best.name}, {us_text(best.us)}: {word}"
    return _level(title, f"{best.promise.speedup:.2f}x", said, against, _error(best), kind=best.promise.verdict.value)


def _error(offer: Offer) -> str:
    error = "error not measured" if offer.promise.error is None else f"predicted, ±{offer.promise.error:.0%}"
    return ", ".join(each for each in (error, offer.promise.outside, calls_text(offer.promise)) if each)


def _written_for_the_plan(advice: Advice) -> Markup:
    chosen, interval = advice.recommended, advice.interval
    how = "predicted" if chosen.simulated_us is None else "simulated"
    said = f"{advice.name_of(chosen.expression)}, {us_text(chosen.best_us)} {how}"
    between = "" if interval is None else "between {:.2f}x and {:.2f}x with the error of such kernels".format(*interval)
    against = f"over {advice.baseline_text}, {us_text(advice.serial.best_us)}"
    title = "The best algorithm" if advice.scenario.is_algorithm_choice else "A kernel written for the plan"
    return _level(title, f"{advice.gain:.2f}x", said, against, between, kind=advice.verdict.value)


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
    mark = mark or ("=" if candidate.expression in advice.ties else "")
    return mark, *candidate_cells(advice, candidate), _staging(candidate.schedule.staging_bytes)


def _staging(num_bytes: int) -> str:
    return bytes_text(num_bytes) if num_bytes else "none"


def implementations(found: Offers) -> Iterator[Markup]:
    """Yield the table of what can be switched on, and what has no prediction here."""
    rows = [
        (
            offer.name,
            OFFER_VERDICTS[offer.promise.verdict][1],
            f"{offer.us:.1f}",
            f"{offer.promise.speedup:.2f}x",
            "-" if offer.promise.error is None else f"±{offer.promise.error:.0%}",
            calls_text(offer.promise),
        )
        for offer in found.offers
    ]
    if rows:
        yield table(
            ("implementation", "worth it", "us", f"over {found.library}", "error", "by its call"), rows, words=2
        )
    yield bullets(f"{offer.name}: {offer.about}" for offer in found.offers if offer.about)
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


def sweep_section(sweep: Sweep, name: str) -> Iterator[Markup]:
    """Yield the drawing of a sweep over the parameter ``name``, and its table."""
    if not sweep.points:
        yield tag("p", "No schedule is feasible at any of the values.")
        return
    yield tag("p", "Of templates alone: no search for plans with chunks of unequal size.", kind="faint")
    yield Markup(sweep_svg(sweep.points, name))
    head = (name, "verdict", "schedule", "us", "baseline us", "gain")
    yield table(head, [_row(point, name) for point in sweep.points], words=3)
    yield bullets(f"{name} = {dict(settings)[name]}: {reason}" for settings, reason in sweep.failed)


def _row(point: SweepPoint, name: str) -> tuple[str, ...]:
    advice = point.advice
    return (
        dict(point.settings)[name],
        VERDICTS[advice.verdict.value],
        advice.name_of(advice.recommended.expression),
        f"{advice.recommended.best_us:.1f}",
        f"{advice.serial.best_us:.1f}",
        f"{advice.speedup:.2f}x",
    )


def several_schedules(answer: Advice) -> Iterator[Markup]:
    """Yield the table of schedules, what those of a search are, and why those without a time have none."""
    timed = [each for each in answer.candidates if not each.problem]
    chosen = [place for place, each in enumerate(timed) if each is answer.recommended]
    head = ("", "schedule", "us", "of which a layer", "gain", "exposed us", "staging", "above the bound")
    yield table(head, [_schedule(answer, each) for each in timed], words=2, marked=chosen)
    run = answer.recommended.result
    of = f"; exposed is that of {run.num_simulated} layers" if run is not None and run.num_simulated > 1 else ""
    searched = f"; {answer.searched} schedules were simulated in the search" if answer.searched else ""
    estimated = "; ~ estimated" if any(each.is_estimate for each in timed) else ""
    yield tag("p", f"* recommended; gain over {answer.baseline_text}{of}{estimated}{searched}.", kind="faint")
    yield bullets(f"{each.expression}: {each.what}" for each in timed if each.what)
    yield bullets(f"{each.expression}: {each.problem}" for each in answer.candidates if each.problem)


def _schedule(answer: Advice, candidate: Candidate) -> tuple[str, ...]:
    result, bound = candidate.result, answer.bound
    known = (
        "*" if candidate is answer.recommended else "",
        candidate.expression,
        f"{'~' if candidate.is_estimate else ''}{candidate.best_us:.1f}",
    )
    gain = f"{answer.serial.best_us / candidate.best_us:.2f}x"
    if result is None:
        return (*known, "-", gain, "-", "-", "-")
    return (
        *known,
        "-" if result.period_ticks is None else f"{result.period_ticks / TICKS_PER_US:.1f}",
        gain,
        f"{result.exposed_ticks / TICKS_PER_US:.1f}",
        _staging(result.schedule.staging_bytes),
        "-" if bound is None else f"{result.total_ticks / bound.ticks - 1:.1%}",
    )


def ops(answer: Advice) -> Iterator[Markup]:
    """Yield the ops under each schedule, those under the recommended one first and open."""
    simulated = [each for each in answer.candidates if each.result is not None]
    for candidate in sorted(simulated, key=lambda each: each is not answer.recommended):
        is_chosen = candidate is answer.recommended
        parts = [_op_table(answer, candidate), tag("pre", schedule_text(answer.scenario, candidate))]
        summary = tag("summary", f"{candidate.expression}, {us_text(candidate.best_us)}")
        yield tag("details", summary, *parts, open="open" if is_chosen else "")
    if answer.recommended.result is not None and answer.recommended.result.num_simulated > 1:
        yield tag("p", "Times are of one layer within, from the begin of the first.", kind="faint")


def _op_table(answer: Advice, candidate: Candidate) -> Markup:
    run = run_of_candidate(answer.scenario, candidate)
    assert run is not None, "asked of what was simulated"
    head = ("op", "what", "carried out", "its copies run beside", "from us", "to us", "kernels", "copies", "exposed")
    return table(head, [_op(op) for op in op_times(run)], words=4)


def _op(op: OpSummary) -> tuple[str, ...]:
    span = op.span
    times = (span.start_ticks, span.end_ticks, op.compute_ticks, op.comm_ticks, op.exposed_ticks)
    said = (op.name, span.label, span.schedule, op.beside_text or ("nothing" if op.comm_ticks else ""))
    return (*said, *(f"{ticks / TICKS_PER_US:.1f}" for ticks in times))


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report is made of: ``run`` is the one that is drawn, ``data`` the document of ``advise --json``.

    ``file`` and ``settings`` say where the scenario is from, ``numbers`` are those of its devices. ``sweep`` goes over
    ``swept``, None without one; ``sweep_note`` says what was left out of it.
    """

    advice: Advice
    run: ShownRun
    data: JsonObject
    file: str
    settings: Settings = ()
    numbers: tuple[StatedNumber, ...] = ()
    top: int = 8
    todo: tuple[NextStep, ...] = ()
    sweep: Sweep | None = None
    swept: str = ""
    sweep_note: str = ""


def report_html(report: ReportData) -> str:
    """Return the whole page."""
    return page_html(report.advice.scenario.title, _sections(report), report.data)


def _sections(report: ReportData) -> Iterator[Markup]:
    advice, scenario = report.advice, report.advice.scenario
    yield header(question_line(scenario), scenario.workload.about, report.file, report.settings)
    yield headline(advice)
    yield levels(advice)
    if report.todo:
        yield section("What to do next", *map(_next_step, report.todo))
    yield section("Timeline", *_timelines(report))
    if advice.recommended.several is None:
        yield section("Schedules", *candidates(advice, report.top))
    else:
        yield section("Schedules", *several_schedules(advice))
        yield section("What each op does", *ops(advice))
    if advice.offers is not None:
        yield section("What you can switch on today", *implementations(advice.offers))
    waterfall = report.run.result.waterfall
    if waterfall is not None:
        about = f"What lies between the lower bound and the run, simulated in units of {waterfall.unit_bytes} B."
        drawing = Markup(waterfall_svg(waterfall))
        yield section("Where the time goes", tag("p", about, kind="faint"), drawing)
    if report.sweep is not None:
        yield section(f"From size to size: {report.swept}", *sweep_section(report.sweep, report.swept))
    if report.sweep_note:
        yield tag("p", report.sweep_note, kind="faint")
    yield section("Why", *reasons(advice))
    yield section("What this rests on", *assumptions(scenario.system, advice.bound, report.numbers))
    yield footer(report.run.result)


def _next_step(step: NextStep) -> Markup:
    if not step.by_command:
        return tag("p", f"{step.what[:1].upper()}{step.what[1:]}.")
    return tag("p", f"{step.what[:1].upper()}{step.what[1:]}: ", tag("code", step.command))


def _timelines(report: ReportData) -> Iterator[Markup]:
    """The run, and below it that of the baseline, to the same scale."""
    baseline = baseline_run(report.advice)
    others = [] if baseline is None or baseline.expression == report.run.expression else [baseline]
    return timelines([report.run, *others], report.advice.baseline_text)


# The page about a training step: the layout to use, its stages over time, and the memory of each stage.


def step_html(advice: StepAdvice, file: str, settings: Settings, numbers: tuple[StatedNumber, ...]) -> str:
    """Return the whole page about the answer on a step of ``file``; ``numbers`` are those of its devices."""
    return page_html(advice.scenario.name, _step_sections(advice, file, settings, numbers), advice.document())


def _step_sections(
    advice: StepAdvice, file: str, settings: Settings, numbers: tuple[StatedNumber, ...]
) -> Iterator[Markup]:
    searched, chosen = advice.searched, advice.recommended
    yield header(advice.scenario.name, question_of(advice.scenario), file, settings)
    counted = counted_text(searched)
    if chosen is None:
        yield section("Layout", tag("p", f"None can be used. {counted}.", kind="verdict"), bullets(advice.marks))
        return
    said = f"{chosen.layout}, {chosen.words}: {seconds_text(chosen.run.makespan_ticks)} a step"
    speed = f"{chosen.tokens_per_gpu_s:,.0f} tokens/s/GPU, {bytes_text(chosen.memory_bytes)} of a GPU"
    yield tag("section", tag("p", said, kind="verdict"), tag("p", speed), bullets(advice.marks))
    yield section("Where the time goes", _wide(step_svg(chosen)), table(("", "time", ""), figures_of(chosen), words=1))
    yield section("Memory", _wide(memory_svg(chosen)), _memory(chosen))
    head, *rows = table_of(searched, chosen)
    note = tag("p", f"{counted}; the {min(SHOWN, len(searched.outcomes))} fastest and those of the file.", kind="faint")
    yield section("Layouts", table(head, rows, words=3, marked=(0,)), note)
    flags = [tag("p", f"{framework}: ", tag("code", flag)) for framework, flag in flags_of(chosen)]
    if flags:
        yield section("What to switch on", *flags)
    yield section("What this rests on", *assumptions(advice.scenario.system, None, numbers))
    yield tag("footer", tag("p", f"Magus {__version__}; {searched.layers_simulated} layers simulated", kind="faint"))


def _wide(drawing: str) -> Markup:
    return tag("div", Markup(drawing), kind="wide")


def _memory(outcome: StepOutcome) -> Markup:
    names = [name for name, _, _ in parts_of(outcome.memory[0])]
    rows = [
        (str(stage), *(bytes_text(size) for _, size, _ in parts_of(each)), bytes_text(each.total))
        for stage, each in enumerate(outcome.memory, 1)
    ]
    return table(("stage", *names, "all"), rows)
