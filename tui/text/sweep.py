"""A sweep as plain text: a line for each point, and the rules that follow."""

from collections.abc import Iterator

from ...advisor.policy.sweep import Sweep, SweepPoint
from ...advisor.policy.table import PolicyRule, PolicyTable
from .question import scenario_line
from .table import VERDICTS, table_lines
from .wrap import bullet, wrapped


def sweep_text(sweep: Sweep, varied: tuple[str, ...]) -> str:
    """Return the points, with the parameters that were ``varied``, and the rules."""
    return "\n".join(_lines(sweep, varied))


def _lines(sweep: Sweep, varied: tuple[str, ...]) -> Iterator[str]:
    yield from wrapped(f"Sizes of the first: {scenario_line(sweep.points[0].advice.case)}")
    yield ""
    head = (*varied, "verdict", "us", "gain")
    rows = [_row(point, varied) for point in sweep.points]
    yield from table_lines([(head, "schedule"), *rows], words=(len(varied),))
    if sweep.policy is not None:
        yield ""
        yield from _policy(sweep.policy)


def _row(point: SweepPoint, varied: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    advice, settings = point.advice, dict(point.settings)
    schedule = advice.name_of(advice.recommended.expression)
    if point.offer is not None:
        schedule += f"  + {point.offer.name} {point.offer.promise.speedup:.2f}x"
    values = tuple(settings[name] for name in varied)
    times = (f"{advice.recommended.best_us:.1f}", f"{advice.speedup:.2f}x")
    return (*values, VERDICTS[advice.verdict.value], *times), schedule


def _policy(policy: PolicyTable) -> Iterator[str]:
    how = "simulated" if policy.simulated else "predicted"
    yield from wrapped(f"Rules, the first that matches wins (flips {how}; magus export --to policy writes them):")
    for rule in policy.rules:
        yield from bullet("-", _rule(rule))
    for mark in policy.marks:
        yield from bullet("!", mark)


def _rule(rule: PolicyRule) -> str:
    multiples = f", multiples of {rule.multiple_of:,}" if rule.multiple_of > 1 else ""
    low, high = rule.gain
    gain = f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"
    loss = (
        f", up to {rule.loss:.1%} behind the fastest at {len(rule.sizes)} size{'s' * (len(rule.sizes) > 1)}"
        if rule.loss >= 0.0005
        else ""
    )
    use = f"; {rule.implementation} pays too" if rule.implementation else ""
    sizes = f"{rule.axis} {rule.least:,}..{rule.most:,}{multiples}"
    return f"{sizes}: {rule.schedule}, {VERDICTS[rule.verdict]}, {gain}{loss}{use}"
