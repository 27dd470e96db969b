"""Advice and results as plain text for terminals of 40 columns or more."""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from ...advisor.answer.headline import headline_of
from ...advisor.bounds.lower_bound import Bound
from ...advisor.candidates.advice import Advice, Threshold
from ...advisor.candidates.candidate import Candidate
from ...advisor.implementations.offers import Offers
from ...advisor.implementations.order import Order
from ...advisor.implementations.promise import Promise
from ...compiler.ir import TICKS_PER_US, Scenario, Workload
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.printable import printable
from ...compiler.text.quantities import bytes_text, ticks_text, us_text
from ...simcore import Cause, CriticalOp, Result, RunOutcome
from ...simcore.figures.result import Waterfall
from .next_steps import NextStep, next_lines
from .sensitivity import sensitivity_lines
from .wrap import bullet, columns, hanging, wrapped

BAR_COLUMNS = 24

PATH_ENDS = 4
"""Number of steps shown at each end of a long critical path."""

_OFFER_VERDICTS = {
    Verdict.OVERLAP: ("+", "yes"),
    Verdict.WORTH_TRYING: ("?", "worth trying"),
    Verdict.SERIAL: ("-", "no"),
}
"""The mark and the words for each verdict on an implementation."""

_WAITED_COLUMN = 30
"""Column of the cause of waiting in a line of the critical path."""


def scenario_line(scenario: Scenario) -> str:
    """Return the question in one line: workload, pattern, shape, system."""
    workload, system, shape = scenario.workload, scenario.system, shape_text(scenario.workload)
    fabric = system.fabric.topology.name.replace("_", " ")
    if workload.loads and workload.pattern.consumes:
        shape = shape.replace("per rank", f"at rank {workload.rank}, which gets most,")
    what = f"{workload.label} {shape}" if shape else workload.label
    return f"{workload.name}: {what} on {system.num_ranks} x {system.gpu.name}, {fabric}"


def shape_text(workload: Workload) -> str:
    """Return the shape of a rank's computation; empty for a kernel alone other than a GEMM, and without a kernel."""
    if workload.then is not None:
        first, then = (shape_text(workload.stage(kernel)).removesuffix(" per rank") for kernel in range(2))
        return f"{first}, then {then.partition(' ')[2]} per rank"
    compute, alone = workload.compute, workload.moved is None and workload.gemm is None
    return "" if compute is None or alone or not compute.text else f"{compute.text} per rank"


def advice_text(advice: Advice, top: int, *, how: bool = False, todo: Sequence[NextStep] = ()) -> str:
    """Return the whole answer: verdict, marks, ranked table, bound, ties, reasons, waterfall, and what ``todo`` next.

    ``how`` adds how to carry the recommended schedule out.
    """
    lines = _advice_lines(advice, top, how, [word for step in todo for word in step.words])
    return "\n".join([*lines, *(["", "Next:", *next_lines(todo)] if todo else [])])


def _advice_lines(advice: Advice, top: int, how: bool, spelled: Collection[str]) -> Iterator[str]:
    """Yield the lines of ``advice_text``; expressions that are ``spelled`` elsewhere are not said again."""
    yield from wrapped(scenario_line(advice.case))
    if advice.case.workload.about:
        yield from wrapped(advice.case.workload.about)
    yield ""
    yield from wrapped(verdict_sentence(advice))
    if headline_of(advice):
        yield from wrapped(f"Over {advice.baseline}: {headline_of(advice)}.")
    yield from wrapped(f"Confidence {advice.confidence.value}: {advice.confidence_reason}.")
    for mark in advice.marks:
        yield from bullet("!", mark)
    yield ""
    if how:
        from ...advisor.how.how import how_of  # who does not ask how does not wait for it
        from .how import how_lines

        yield from how_lines(
            how_of(advice.case, advice.recommended.schedule), advice.name_of(advice.recommended.expression)
        )
        yield ""
    yield from candidate_table(advice, top)
    yield from _spelled_names(advice, top, spelled)
    yield ""
    if advice.offers is not None:
        yield from implementation_lines(advice.offers)
        yield ""
    yield from wrapped(bound_sentence(advice))
    if advice.ties:
        resolution = advice.scenario.resolution
        yield from wrapped(f"Ties (within {resolution:.0%}, more than the profile can tell apart):")
        for tie in advice.ties:
            yield from bullet("=", advice.name_of(tie))
    if advice.threshold is not None:
        yield from wrapped(threshold_sentence(advice.threshold))
    if advice.sensitivity is not None:
        yield from sensitivity_lines(advice.sensitivity, advice.short_names)
    yield ""
    yield "Why:"
    for reason in advice.reasons:
        yield from bullet("-", reason)
    if advice.result is not None and advice.result.waterfall is not None:
        yield ""
        yield from waterfall_lines(advice.result.waterfall)


def verdict_sentence(advice: Advice) -> str:
    """Return the verdict; for a collective alone, the algorithm to use."""
    if advice.scenario.is_algorithm_choice:
        return _which_algorithm(advice)
    name = advice.name_of(advice.recommended.expression)
    serial, best = us_text(advice.serial.best_us), us_text(advice.recommended.best_us)
    interval = "" if advice.promise is None else interval_text(advice.promise)
    against = f"{best} against {serial} {advice.against}, {advice.speedup:.2f}x faster{interval}."
    if advice.verdict is Verdict.OVERLAP:
        return f"OVERLAP: use {name}. {against}"
    if advice.promise is not None and advice.verdict is Verdict.WORTH_TRYING:
        return f"WORTH TRYING: {name}. {against[:-1]}; {why_tried(advice.promise)}."
    if advice.recommended.expression != advice.serial.expression:
        return f"SERIAL: {advice.why_serial}. Use {name}: {against}"
    return f"SERIAL: {advice.why_serial}. Use {name}, {serial}."


def interval_text(promise: Promise) -> str:
    """Return the speedups that the error leaves possible, in brackets."""
    return "" if promise.interval is None else " ({:.2f}x to {:.2f}x)".format(*promise.interval)


def why_tried(promise: Promise) -> str:
    """Return why a gain is no promise."""
    if promise.outside or promise.error is None:
        return promise.outside or "the error of such predictions was not measured"
    return f"that is within the error of kernels written to the limit (+-{promise.error:.0%})"


def implementation_lines(found: Offers) -> Iterator[str]:
    """Yield what can be switched on today."""
    library = "" if found.library_us is None else f", over {found.library}, {us_text(found.library_us)}"
    yield from wrapped(f"What you can switch on today{library}:")
    for offer in found.offers:
        promise = offer.promise
        mark, word = _OFFER_VERDICTS[promise.verdict]
        error = "error not measured" if promise.error is None else f"+-{promise.error:.0%}"
        outside = f", {promise.outside}" if promise.outside else ""
        on = "" if offer.order is None else f"; {settings_text(offer.order)}"
        text = f"{offer.name} {promise.speedup:.2f}x ({error}{outside}), {us_text(offer.us)}: {word}{on}"
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
    how = "simulated" if threshold.simulated else "predicted"
    if threshold.rows is None:
        pays = "pays at every" if threshold.pays_above else "does not pay at any"
        return f"Overlap {pays} M that was tried from {fewer:,} to {more:,} ({how})."
    pays, otherwise = ("pays", "not") if threshold.pays_above else ("does not pay", "it does")
    return f"Overlap {pays} from M = {threshold.rows:,} ({otherwise} at {fewer:,}; {how})."


def _which_algorithm(advice: Advice) -> str:
    """Return the algorithm to use for a collective alone, compared with the library if its time is known."""
    how = "" if advice.recommended.simulated_us is not None else " (predicted)"
    if advice.verdict is Verdict.LIBRARY:
        return f"LIBRARY: keep its choice, {us_text(advice.serial.best_us)}{how}; no other schedule is clearly faster."
    if advice.recommended.expression == advice.serial.expression:
        others = "no other schedule was ranked in time" if len(advice.candidates) == 1 and advice.interrupted else ""
        against = f"; {others or 'no other schedule is clearly faster'}"
    else:
        against = f", {advice.speedup:.2f}x faster than {advice.baseline}, {us_text(advice.serial.best_us)}"
    return f"Use {advice.name_of(advice.recommended.expression)}: {us_text(advice.recommended.best_us)}{how}{against}."


def shown_candidates(advice: Advice, top: int) -> Sequence[Candidate]:
    """Return the simulated candidates, or without simulation the ``top`` best predicted and the baseline."""
    shown = [candidate for candidate in advice.candidates if candidate.simulated_ticks is not None]
    favourites = advice.candidates[:top]
    return shown or [*favourites, *([] if advice.serial in favourites else [advice.serial])]


def legend(advice: Advice, shown: Sequence[Candidate]) -> str:
    """Return what the marks in the table of the ``shown`` candidates mean, and how many others there are."""
    rest = len(advice.candidates) - len(shown)
    others = f"{rest} more feasible schedules were" if rest > 1 else "1 more feasible schedule was"
    return (
        f"* recommended, = tie, ~ simulated in packets, else in cache lines; gain over {advice.baseline}."
        f"{f' {others} not simulated.' if rest else ''}"
    )


def _spelled_names(advice: Advice, top: int, spelled: Collection[str]) -> Iterator[str]:
    """Yield the expressions behind short names in the table."""
    for candidate in shown_candidates(advice, top):
        name = advice.name_of(candidate.expression)
        if name != candidate.expression and candidate.expression not in spelled:
            yield from hanging(f"{name.partition(' (')[0]} is {candidate.expression}", 2)


def candidate_table(advice: Advice, top: int) -> Iterator[str]:
    """Yield the table of ranked schedules."""
    line_bytes, names = advice.scenario.gpu.line_bytes, advice.short_names
    rows = [("", "schedule", "pred us", "sim us", "gain")]
    shown = shown_candidates(advice, top)
    for candidate in shown:
        simulated = candidate.simulated_us
        coarse = "" if candidate.unit_bytes == line_bytes else "~"
        rows.append(
            (
                _mark(advice, candidate),
                names.get(candidate.expression, candidate.expression),
                "-" if candidate.predicted_us is None else f"{candidate.predicted_us:.1f}",
                "-" if simulated is None else f"{coarse}{simulated:.1f}",
                f"{advice.serial.best_us / candidate.best_us:.2f}x",
            )
        )
    yield from table(rows)
    yield from wrapped(legend(advice, shown))


def _mark(advice: Advice, candidate: Candidate) -> str:
    if candidate.expression == advice.recommended.expression:
        return "*"
    return "=" if candidate.expression in advice.ties else " "


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, the first two to the left, numbers to the right.

    A name that leaves no room for its numbers gets a line of its own above them.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[1] = min(widths[1], columns() - sum(widths) + widths[1] - len(widths) + 1)

    def line(row: Sequence[str]) -> str:
        cells = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        cells += [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        return " ".join(cells).rstrip()

    lines = []
    for mark, name, *numbers in rows:
        if len(name) > widths[1]:
            lines += [*hanging(name, widths[0] + 3, f"{mark.ljust(widths[0])} "), line(("", "", *numbers))]
        else:
            lines.append(line((mark, name, *numbers)))
    return lines


def waterfall_lines(waterfall: Waterfall) -> Iterator[str]:
    """Yield the losses from the lower bound up to the makespan, as bars."""
    figure_columns = min(10, columns() - 31)
    bar_columns = max(0, min(BAR_COLUMNS, columns() - 33 - figure_columns))
    yield from wrapped(f"Loss waterfall, us (simulated at {waterfall.unit_bytes} B):")
    for name, ticks in waterfall.rows:
        bar = "#" * round(bar_columns * abs(ticks) / max(1, waterfall.makespan_ticks))
        yield f"  {name:<29}{ticks / TICKS_PER_US:>{figure_columns}.1f}  {bar}".rstrip()


def result_text(result: Result, scenario: Scenario, bound: Bound, outside: Sequence[str] = ()) -> str:
    """Return one simulated schedule in words and numbers; ``outside`` names what the profile is not fitted to."""
    hidden, traffic, used = result.overlap_efficiency, result.traffic, result.utilization
    binding = f"binding: {bound.binding}" if scenario.system.replay is None else "with all ranks simulated"
    rows = [
        ("makespan", us_text(result.makespan_us), f"{result.makespan_cycles:,} cycles"),
        ("compute", ticks_text(result.compute_ticks), "busy time of kernels"),
        ("communication", ticks_text(result.comm_ticks), "busy time of transfers"),
        ("exposed", ticks_text(result.exposed_ticks), "makespan without compute"),
        ("overlap efficiency", "-" if hidden is None else f"{hidden:.1%}", "share of communication hidden"),
        ("DIL", _ratio(result.dil), "parts alone over the whole kernel"),
        ("CIL", _ratio(result.cil), "kernels overlapped over alone"),
        ("lower bound", ticks_text(bound.ticks), binding),
        (
            "HBM read, written",
            f"{bytes_text(traffic.hbm_read_bytes)}, {bytes_text(traffic.hbm_write_bytes)}",
            f"{used.hbm:.0%} busy",
        ),
        ("L2", bytes_text(traffic.l2_bytes), f"{used.l2:.0%} busy"),
        *([("network on chip", f"{used.noc:.0%}", "busy with GEMMs and copies")] if used.noc else []),
        ("links", bytes_text(traffic.link_bytes), f"{used.links:.0%} busy"),
        ("SMs, engines", f"{used.sms:.0%}, {used.engines:.0%}", "busy"),
    ]
    name_width, value_width = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    lines = [
        *wrapped(scenario_line(scenario)),
        *wrapped(f"{result.schedule.expression} at {result.granularity} granularity ({result.unit_bytes} B)"),
        *wrapped(folding_sentence(result)),
        *([] if result.outcome is RunOutcome.DONE else wrapped(f"PARTIAL: {result.outcome.value}")),
        *(line for sentence in outside for line in bullet("!", sentence)),
        "",
    ]
    for name, value, note in rows:
        lines += hanging(f"{name:<{name_width}}  {value:>{value_width}}  {note}".rstrip(), name_width + 2)
    if result.waterfall is not None:
        lines += ["", *waterfall_lines(result.waterfall)]
    if result.critical_path:
        lines += ["", *critical_lines(result.critical_path)]
    return "\n".join(lines)


def folding_sentence(result: Result) -> str:
    """Return how much was simulated, how much it represents, and why not less was simulated."""
    simulated, ranks = f"{result.line_hops:,} line-hops", result.num_ranks
    if result.line_hops < result.line_hops_represented:
        simulated += f", which stand for {result.line_hops_represented:,}"
    if result.not_alike is None:
        return simulated + (f": one rank simulated for all {ranks}" if ranks > 1 else "")
    how_many = "all" if result.ranks_simulated == ranks else str(result.ranks_simulated)
    return f"{simulated}: {how_many} of {ranks} ranks simulated, since {result.not_alike}"


def critical_lines(path: Sequence[CriticalOp]) -> Iterator[str]:
    """Yield the critical path, a line for each step of the plan; of a long path the first and the last steps."""
    steps = [list(ops) for _, ops in groupby(path, key=lambda op: (op.label, op.rank))]
    before = ["", *(ops[-1].label for ops in steps)]
    shown = [critical_line(ops, label) for ops, label in zip(steps, before, strict=False)]
    if len(shown) > 2 * PATH_ENDS + 1:
        left_out = len(shown) - 2 * PATH_ENDS
        shown = [*shown[:PATH_ENDS], f"  {'...':>8}{'':>11}{left_out} more steps", *shown[-PATH_ENDS:]]
    yield from wrapped("Critical path, us (from, to, step, what it waited for):")
    for line in shown:
        yield from hanging(line, min(_WAITED_COLUMN, columns() - _WAITED_COLUMN))


def critical_line(ops: Sequence[CriticalOp], before: str) -> str:
    """Return one step: its time on the path, what it waited for, and the server at which its units queued."""
    first, last = ops[0], ops[-1]
    waited = first.resource or (before if first.cause is Cause.OP else first.cause.value)
    waves = sum(op.cause is Cause.SLOT for op in ops[1:])
    if waves:
        waited += f", then {ops[-1].resource} {waves}x"
    worst = max(ops, key=lambda op: op.queued_ticks)
    if worst.queued_ticks >= TICKS_PER_US // 10:
        waited += f"; units queued {ticks_text(worst.queued_ticks)} at {worst.queued_at}"
    since, done = first.since_ticks / TICKS_PER_US, last.done_ticks / TICKS_PER_US
    return f"  {since:>8.1f} {done:>8.1f}  {first.label:<8} {waited}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
