"""Several ops on the page: their schedules, of which one is recommended, and what each op does under them."""

from collections.abc import Iterator

from ...advisor.answer.runs import run_of_candidate
from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import TICKS_PER_US
from ...compiler.text.quantities import bytes_text, us_text
from ...simcore.op_spans import OpSummary, op_times
from ..text.ops import schedule_text
from .markup import Markup, bullets, table, tag


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
    return (
        *known,
        "-" if result.period_ticks is None else f"{result.period_ticks / TICKS_PER_US:.1f}",
        gain,
        f"{result.exposed_ticks / TICKS_PER_US:.1f}",
        bytes_text(result.schedule.staging_bytes) if result.schedule.staging_bytes else "none",
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
