"""A sweep of a graph as plain text: a line for each point, the rules that follow, and the schedules they name."""

from collections.abc import Iterator

from ...advisor.policy.graph_sweep import GraphPoint, GraphRule, GraphSweep, block_of
from ...compiler.ir import TICKS_PER_US
from .question import question_line
from .table import VERDICTS, table_lines
from .wrap import bullet, wrapped


def graph_sweep_text(sweep: GraphSweep, varied: tuple[str, ...]) -> str:
    """Return the points, with the parameters that were ``varied``, the rules, and schedules as blocks."""
    return "\n".join(_lines(sweep, varied))


def _lines(sweep: GraphSweep, varied: tuple[str, ...]) -> Iterator[str]:
    graph = sweep.points[0].advice.scenario
    yield from wrapped(question_line(graph))
    yield ""
    head = (*varied, "verdict", "us", "gain")
    yield from table_lines([(head, "schedule"), *(_row(point, varied) for point in sweep.points)], words=(len(varied),))
    if sweep.rules:
        yield ""
        yield from wrapped("Rules, one schedule for neighbouring points:")
        for rule in sweep.rules:
            yield from bullet("-", _rule(rule, varied))
    used = {rule.schedule for rule in sweep.rules} or {point.schedule for point in sweep.points}
    for choice in sweep.schedules:
        block = block_of(choice, graph.name) if choice.name in used else None
        if block is not None:
            yield from ("", *block.rstrip().split("\n"))


def _row(point: GraphPoint, varied: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    settings = dict(point.settings)
    values = tuple(settings[name] for name in varied)
    us = point.ticks[point.schedule] / TICKS_PER_US
    return (*values, VERDICTS[point.advice.verdict.value], f"{us:.1f}", f"{point.gain:.2f}x"), point.schedule


def _rule(rule: GraphRule, varied: tuple[str, ...]) -> str:
    first, last = dict(rule.first), dict(rule.last)
    ends = (f"{name} {first[name]}" + (f"..{last[name]}" if first != last else "") for name in varied)
    low, high = (f"{gain:.2f}x" for gain in rule.gain)
    gain = low if low == high else f"{low} to {high}"
    loss = f", up to {rule.loss:.1%} behind the best" if rule.loss >= 0.0005 else ""
    return f"{', '.join(ends)}: {rule.schedule}, {gain}{loss}"
