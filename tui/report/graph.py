"""The page about a graph: its schedules, one of them recommended, and what each op does under them."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...advisor.answer.runs import run_of
from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import TICKS_PER_US, JsonObject, Settings
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...compiler.text.quantities import bytes_text, ticks_text, us_text
from ...simcore.op_spans import OpSummary, op_times
from ..text.graph import graph_line
from ..text.graph_answer import graph_verdict, schedule_text
from .assumptions import assumptions
from .markup import Markup, bullets, table, tag
from .shell import footer, header, page_html, section, timelines


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What a report on a graph is made of; fields are those of ``Report``."""

    answer: Advice
    data: JsonObject
    file: str
    settings: Settings = ()
    numbers: tuple[StatedNumber, ...] = ()


def graph_report_html(report: GraphReport) -> str:
    """Return the whole page."""
    return page_html(report.answer.scenario.name, _sections(report), report.data)


def _sections(report: GraphReport) -> Iterator[Markup]:
    answer, scenario = report.answer, report.answer.scenario
    yield header(graph_line(scenario), scenario.graph.about, report.file, report.settings)
    yield _headline(answer)
    yield _levels(answer)
    others = [answer.serial] if answer.serial is not answer.recommended else []
    runs = [run for each in (answer.recommended, *others) if (run := run_of(scenario, each)) is not None]
    yield section("Timeline", *timelines(runs, answer.baseline))
    yield section("Schedules", *_schedules(answer))
    yield section("What each op does", *_ops(answer))
    yield section("Why", bullets(answer.reasons))
    yield section("What this rests on", *assumptions(scenario.system, answer.bound, report.numbers))
    yield footer(runs[0].result)


def _headline(answer: Advice) -> Markup:
    confidence = f"Confidence {answer.confidence.value}: {answer.confidence_reason}."
    said = [tag("p", graph_verdict(answer), kind="verdict"), tag("p", confidence), bullets(answer.marks)]
    return tag("section", *said, kind=answer.verdict.value)


def _levels(answer: Advice) -> Markup:
    """The gain of the recommended schedule, and what none can beat."""
    best, bound, gap = answer.recommended, answer.bound, answer.gap_to_bound
    against = f"over {answer.baseline}, {us_text(answer.serial.best_us)}"
    cards = [_level("The schedule", answer.speedup, f"{best.expression}, {us_text(best.best_us)} simulated", against)]
    if bound is not None and gap is not None:
        limit, time = answer.serial.best_us * TICKS_PER_US / bound.ticks, ticks_text(bound.ticks)
        said = f"{time}, bound by {bound.binding}"
        cards.append(_level("What no schedule can beat", limit, said, f"the schedule is {gap:.1%} above it"))
    return tag("div", *cards, kind=f"levels {answer.verdict.value}")


def _level(title: str, gain: float, *lines: str) -> Markup:
    parts = [tag("p", line) for line in lines]
    return tag("div", tag("h3", title), tag("div", f"{gain:.2f}x", kind="gain"), *parts, kind="level")


def _schedules(answer: Advice) -> Iterator[Markup]:
    """Yield the table of schedules, what those of a search are, and why those without a time have none."""
    timed = [each for each in answer.candidates if not each.problem]
    chosen = [place for place, each in enumerate(timed) if each is answer.recommended]
    head = ("", "schedule", "us", "of which a layer", "gain", "exposed us", "staging", "above the bound")
    yield table(head, [_schedule(answer, each) for each in timed], words=2, marked=chosen)
    run = answer.recommended.result
    of = f"; exposed is that of {run.num_simulated} layers" if run is not None and run.num_simulated > 1 else ""
    searched = f"; {answer.searched} schedules were simulated in the search" if answer.searched else ""
    estimated = "; ~ estimated" if any(each.is_estimate for each in timed) else ""
    yield tag("p", f"* recommended; gain over {answer.baseline}{of}{estimated}{searched}.", kind="faint")
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
    whole = result.simulated.whole
    return (
        *known,
        "-" if result.period_ticks is None else f"{result.period_ticks / TICKS_PER_US:.1f}",
        gain,
        f"{whole.exposed_ticks / TICKS_PER_US:.1f}",
        bytes_text(whole.schedule.staging_bytes) if whole.schedule.staging_bytes else "none",
        "-" if bound is None else f"{result.makespan_ticks / bound.ticks - 1:.1%}",
    )


def _ops(answer: Advice) -> Iterator[Markup]:
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
    run = run_of(answer.scenario, candidate)
    assert run is not None, "asked of what was simulated"
    head = ("op", "what", "carried out", "its copies run beside", "from us", "to us", "kernels", "copies", "exposed")
    return table(head, [_op(op) for op in op_times(run)], words=4)


def _op(op: OpSummary) -> tuple[str, ...]:
    span = op.span
    times = (span.start_ticks, span.end_ticks, op.compute_ticks, op.comm_ticks, op.exposed_ticks)
    said = (op.name, span.label, span.schedule, op.beside_text or ("nothing" if op.comm_ticks else ""))
    return (*said, *(f"{ticks / TICKS_PER_US:.1f}" for ticks in times))
