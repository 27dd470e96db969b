"""The result of a simulated schedule as plain text, of one op or of several; and reports of ``magus run``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ...advisor.bounds.lower_bound import Bound
from ...compiler.ir import TICKS_PER_US, Rejection, Scenario, WorkloadCut
from ...compiler.text.units import bytes_text, ticks_text, us_text
from ...runtime import RunReport
from ...simcore import Cause, CriticalOp, Result, RunOutcome
from ...simcore.figures.result import Waterfall
from .door import bullet, columns, hanging, wrapped
from .ops import layers_lines, layers_rows, question_line, run_lines

BAR_COLUMNS = 24

PATH_ENDS = 4
"""Number of steps shown at each end of a long critical path."""

_WAITED_COLUMN = 30
"""Column of the cause of waiting in a line of the critical path."""


def result_text(
    result: Result,
    scenario: Scenario,
    bound: Bound,
    outside: Sequence[str] = (),
    *,
    cut: WorkloadCut | None = None,
) -> str:
    """Return one simulated schedule in words and numbers; ``outside`` names what the profile is not fitted to.

    That of several ops, which are given by how the workload is ``cut``, also says when each runs, and how long all
    layers take.
    """
    rows = _rows(result, scenario, bound, several=cut is not None)
    name_width, value_width = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    lines = [
        *wrapped(question_line(scenario)),
        *wrapped(f"{result.schedule.expression} at {result.granularity} granularity ({result.unit_bytes} B)"),
        *wrapped(folding_sentence(result)),
        *([] if result.outcome is RunOutcome.DONE else wrapped(f"PARTIAL: {result.outcome.value}")),
        *(line for sentence in outside for line in bullet("!", sentence)),
        *layers_lines(result),
        "",
    ]
    for name, value, note in rows:
        lines += hanging(f"{name:<{name_width}}  {value:>{value_width}}  {note}".rstrip(), name_width + 2)
    if cut is not None:
        lines += ["", *run_lines(scenario, result, cut)]
    if result.waterfall is not None:
        lines += ["", *waterfall_lines(result.waterfall)]
    if result.critical_path:
        lines += ["", *critical_lines(result.critical_path)]
    return "\n".join(lines)


def _rows(result: Result, scenario: Scenario, bound: Bound, *, several: bool) -> list[tuple[str, str, str]]:
    """The figures: name, value, and what it is."""
    hidden, traffic, used = result.overlap_efficiency, result.traffic, result.utilization
    binding = f"binding: {bound.binding}" if scenario.system.replay is None else "with all ranks simulated"
    binding += f", of {result.layers} layers" if result.layers > 1 else ""
    return [
        *layers_rows(result),
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
        *([("staging", bytes_text(result.schedule.staging_bytes), "at one time")] if several else []),
    ]


def waterfall_lines(waterfall: Waterfall) -> Iterator[str]:
    """Yield the losses from the lower bound up to the makespan, as bars."""
    figure_columns = min(10, columns() - 31)
    bar_columns = max(0, min(BAR_COLUMNS, columns() - 33 - figure_columns))
    of = f" of {waterfall.layers} layers" if waterfall.layers > 1 else ""
    yield from wrapped(f"Loss waterfall{of}, us (simulated at {waterfall.unit_bytes} B):")
    for name, ticks in waterfall.rows:
        bar = "#" * round(bar_columns * abs(ticks) / max(1, waterfall.makespan_ticks))
        yield f"  {name:<29}{ticks / TICKS_PER_US:>{figure_columns}.1f}  {bar}".rstrip()


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


SCHEMA = "magus-run/1"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Carried:
    """A schedule with the report of its run, or with the reason why there is none; ``notes`` say what is smaller."""

    schedule: str
    report: RunReport | None
    rejection: Rejection | None = None
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it was carried out, and right."""
        return self.report is not None and self.report.exact

    @property
    def outcome(self) -> str:
        """What became of it, in a word or two."""
        return REFUSED if self.report is None else self.report.runs[-1].outcome.value

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is wrong, or why it was not carried out."""
        if self.rejection is not None:
            return (f"{self.rejection.code.name}: {self.rejection.message}",)
        return self.report.runs[-1].sentences if self.report is not None else ()


def run_text(carried: Carried, seeds: range) -> str:
    """Return the schedule, and below it what was carried out and what became of it."""
    lines = [*wrapped(carried.schedule), *hanging(_summary(carried, seeds), 4, "  ")]
    sentences = (*carried.notes, *carried.sentences)
    return "\n".join([*lines, *(line for sentence in sentences for line in hanging(sentence, 6, "    "))])


def _summary(carried: Carried, seeds: range) -> str:
    report = carried.report
    if report is None:
        return "not carried out:"
    steps = ", ".join(
        (_count(report.copies, "copy", "copies"), _count(report.kernels, "kernel"), _count(report.sums, "sum"))
    )
    failed = f"seed {report.runs[-1].seed}"
    which = f"seeds {seeds.start} to {seeds[-1]}" if len(seeds) > 1 else f"seed {seeds.start}"
    where = f"{report.num_ranks} ranks" + (f", {report.layers} layers" if report.layers > 1 else "")
    return f"{carried.outcome} on {where}: {steps}; {which if report.exact else failed}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def runs_document(workload: str, ranks: int, seeds: range, carried: Sequence[Carried]) -> dict[str, Any]:
    """Return the document of ``magus run --json``; a run that fails is the last of its schedule."""
    return {
        "schema": SCHEMA,
        "workload": workload,
        "ranks": ranks,
        "seeds": {"first": seeds.start, "count": len(seeds)},
        "exact": all(each.exact for each in carried),
        "schedules": [_one(each) for each in carried],
    }


def _one(carried: Carried) -> dict[str, Any]:
    report = carried.report
    return {
        "schedule": carried.schedule,
        "outcome": carried.outcome,
        "seed": None if report is None or report.exact else report.runs[-1].seed,
        **{name: getattr(report, name, None) for name in ("copies", "kernels", "sums", "layers")},
        "notes": list(carried.notes),
        "sentences": list(carried.sentences),
    }
