"""From sizes to rules: advice for each size, few schedules for all, and where one gives way to the next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from ...compiler.ir import OpChoice, Scenario
from ...compiler.planning.build import build_op_plan, expression_of
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.templates import BASELINE
from ..candidates.advice import Advice
from ..work.pools import Ask
from .cover import (
    BYTES,
    TOLERANCE,
    AdvisedSize,
    SizeAxis,
    Stretch,
    cover,
    first_of_next,
    multiple_of,
    time_us,
)
from .table import OpRule, PolicyRule, PolicyTable, SweepPoint, implementation_at_all, rule_verdict, table_of

MAX_ROUNDS, ROUND = 4, 16
"""How often sizes are added, beside flips and where a rule loses more than it may, in multiples of so many grains."""

CHECKS = (17 / 16, 5 / 4, 3 / 2)
"""Where rules are checked between two sizes, times the lower one: just behind it a wave of tiles is nearly empty."""


def policy_table(
    axis: SizeAxis,
    sizes: Sequence[int],
    ask: Ask[Scenario, Advice],
    *,
    simulated: bool,
    tolerance: float = TOLERANCE,
) -> PolicyTable:
    """Return rules for all sizes of ``axis`` from the least to the greatest of ``sizes``, multiples of its grain.

    Parameters
    ----------
    ask
        Begins to advise on sizes; returns for each what waits for its advice.
    simulated
        Whether flips between two sizes are found by simulations, or by estimates.
    tolerance
        The relative loss over what is recommended that a rule may have so that there are fewer rules. Rules are checked
        between ``sizes`` too, and where one loses more there its sizes are cut once more, a few times.
    """
    known, checked = _points(axis, set(sizes), ask), dict[int, AdvisedSize]()
    for rounds_left in reversed(range(MAX_ROUNDS)):
        ranges = _ranges(axis, [known[size] for size in sorted(known)], tolerance, simulated=simulated)
        # Between two sizes a third schedule may be the best: what is best next to a flip is asked, not concluded.
        beside = {size for each in ranges[1:] if (size := _before(axis, each.least)) > ranges[0].least} - set(known)
        if beside and rounds_left:
            known |= _points(axis, beside, ask)
            continue
        checked |= _points(axis, _between(axis, ranges, sorted(known)) - set(checked), ask)
        lost = {size for each in ranges for size in each.lost(checked, tolerance, simulated=simulated)}
        if not lost or not rounds_left:
            break
        known |= {size: checked.pop(size) for size in lost}
    seen = [each.seen(checked) for each in ranges]
    overlaps = any(point.overlaps for point in known.values())
    choices = [each.stretch.choice if overlaps else _plain(each.stretch) for each in seen]
    both = (_rules(axis, *each, simulated=simulated) for each in zip(seen, choices, strict=True))
    rules, fallback = zip(*both, strict=True)
    advices = [point.advice for each in seen for point in each.stretch.points]
    of_sizes = {point.size: point.advice for each in seen for point in each.stretch.points}
    name = "bytes" if axis.field == BYTES else "M"
    points = [SweepPoint(((name, str(size)),), of_sizes[size]) for size in sorted(set(sizes))]
    joined = (*_joined(rules), *_joined(filter(None, fallback)))
    return table_of(joined, advices, points, simulated=simulated)


@dataclass(frozen=True, slots=True)
class _Range:
    """The sizes from ``least`` to ``most`` that a stretch is for."""

    stretch: Stretch
    least: int
    most: int

    def lost(self, checked: Mapping[int, AdvisedSize], tolerance: float, *, simulated: bool) -> Iterator[int]:
        """Yield the sizes of ``checked`` in this range at which its schedule loses more, or is of another kind."""
        choice, overlaps = self.stretch.choice, self.stretch.points[0].overlaps
        for point in self._of(checked):
            us = time_us(point, choice, simulated=simulated)
            loses = us is not None and us > point.advice.recommended.best_us * (1 + tolerance)
            if loses or point.overlaps is not overlaps:
                yield point.size

    def seen(self, checked: Mapping[int, AdvisedSize]) -> "_Range":
        """The same with the sizes of ``checked`` in this range among its points."""
        points = sorted((*self.stretch.points, *self._of(checked)), key=lambda point: point.size)
        return replace(self, stretch=replace(self.stretch, points=tuple(points)))

    def _of(self, checked: Mapping[int, AdvisedSize]) -> Iterator[AdvisedSize]:
        return (point for size, point in checked.items() if self.least <= size <= self.most)


def _ranges(axis: SizeAxis, points: Sequence[AdvisedSize], tolerance: float, *, simulated: bool) -> list[_Range]:
    """Return the stretches that cover ``points``, each with the sizes that it is for."""
    stretches = cover(points, tolerance)
    flips = [first_of_next(axis, left, right, simulated=simulated) for left, right in pairwise(stretches)]
    starts, ends = [points[0].size, *flips], [*(flip - 1 for flip in flips), points[-1].size]
    return [_Range(*each) for each in zip(stretches, starts, ends, strict=True)]


def _between(axis: SizeAxis, ranges: Sequence[_Range], known: Sequence[int]) -> set[int]:
    """Return sizes between those that are ``known`` at which the schedules of ``ranges`` can be cut."""
    found = set[int]()
    for low, high in pairwise(known):
        for size in (round(low * share) for share in CHECKS):
            at = next(each for each in ranges if each.least <= size <= each.most or each is ranges[-1])
            multiple = multiple_of(axis, at.stretch.choice, low)
            found |= {near for near in (-(-size // multiple) * multiple,) if low < near < high and near <= at.most}
    return found


def _points(axis: SizeAxis, sizes: Set[int], ask: Ask[Scenario, Advice]) -> dict[int, AdvisedSize]:
    if not sizes:
        return {}
    ordered = sorted(sizes)
    answers = ask([Scenario.of_one(axis.at(size)) for size in ordered])
    return {size: AdvisedSize(size, answer()) for size, answer in zip(ordered, answers, strict=True)}


def _before(axis: SizeAxis, flip: int) -> int:
    """A size below ``flip`` that most schedules can be cut for."""
    grain = axis.grain * ROUND
    return (flip - 1) // grain * grain if flip > grain else (flip - 1) // axis.grain * axis.grain


def _rules(axis: SizeAxis, own: _Range, choice: OpChoice, *, simulated: bool) -> tuple[PolicyRule, PolicyRule | None]:
    """Return the rule of a range, and one for the sizes between those that it can cut where padding costs more."""
    multiple = multiple_of(axis, choice, own.stretch.points[0].size)
    rule = replace(_rule_of(axis, own, choice, multiple, simulated=simulated), pad=multiple - 1)
    other = _fallback(axis, own) if multiple > axis.grain else None
    if other is None:
        return rule, None
    times = ([time_us(point, each, simulated=simulated) for each in (choice, other)] for point in own.stretch.points)
    slower = min(second / first - 1 for first, second in times if first is not None and second is not None)
    pad = max(axis.grain - 1, min(multiple - 1, int(own.least * slower)))
    if pad == multiple - 1:
        return rule, None
    fallback = _rule_of(axis, own, other, axis.grain, simulated=simulated)
    return replace(rule, pad=pad), replace(fallback, pad=axis.grain - 1)


def _plain(stretch: Stretch) -> OpChoice:
    """The schedule of a rule where no rule overlaps: the library's own calls unless a gain over them is promised.

    Beside overlap it is the recommended one: flips are where that gives way, and it is worth trying as overlap is.
    """
    advices = [point.advice for point in stretch.points]
    plain = advices[0].serial.choice
    promised = all(advice.verdict is Verdict.SERIAL for advice in advices)
    return stretch.choice if promised or plain is None else plain


def _fallback(axis: SizeAxis, own: _Range) -> OpChoice | None:
    """Return the fastest schedule that fits all sizes of a range."""
    stretch = own.stretch
    size, tables = stretch.points[0].size, [point.times_us() for point in stretch.points]
    everywhere = (choice for choice in tables[0] if all(choice in table for table in tables))
    fits = (choice for choice in everywhere if multiple_of(axis, choice, size) <= axis.grain)
    return next(fits, stretch.points[0].advice.serial.choice)


def _joined(rules: Iterable[PolicyRule]) -> Iterator[PolicyRule]:
    """Yield ``rules``, neighbours that say the same as one."""
    last: PolicyRule | None = None
    for rule in rules:
        if last is not None and last.most + 1 == rule.least:
            low, high = zip(last.gain, rule.gain, strict=True)
            grown = replace(
                last,
                most=rule.most,
                gain=(min(low), max(high)),
                loss=max(last.loss, rule.loss),
                sizes=(*last.sizes, *rule.sizes),
                pad=min(last.pad, rule.pad),
            )
            same = replace(rule, least=last.least, gain=grown.gain, loss=grown.loss, sizes=grown.sizes, pad=grown.pad)
            if same == grown:
                last = grown
                continue
        if last is not None:
            yield last
        last = rule
    if last is not None:
        yield last


def _rule_of(axis: SizeAxis, own: _Range, choice: OpChoice, multiple: int, *, simulated: bool) -> PolicyRule:
    stretch = own.stretch
    scenario, advices = stretch.points[0].advice.case, [point.advice for point in stretch.points]
    shape, gemm = scenario.shape, scenario.shape.gemm
    dtype = gemm.dtype if gemm is not None else shape.tensors[0].dtype
    timed = [(time_us(point, choice, simulated=simulated), point) for point in stretch.points]
    times = [(us, point) for us, point in timed if us is not None]
    gains = [point.advice.serial.best_us / us for us, point in times]
    engine = build_op_plan(scenario, choice).engine
    op = OpRule(
        scenario.name,
        scenario.name,
        expression_of(choice),
        choice.template,
        choice.algorithm or (choice.template if stretch.points[0].advice.scenario.is_algorithm_choice else ""),
        choice.tactics.protocol.value,
        choice.chunks,
        engine.copy_engines,
        engine.copy_sms,
    )
    return PolicyRule(
        pattern=shape.pattern.value,
        gpu=scenario.gpu.name,
        ranks=scenario.num_ranks,
        topology=scenario.system.fabric.topology.name,
        dtype=dtype.value,
        n=None if gemm is None or axis.field == BYTES else gemm.n,
        k=None if gemm is None or axis.field == BYTES else gemm.k,
        axis=axis.field,
        least=own.least,
        most=own.most,
        multiple_of=multiple,
        verdict=_verdict(stretch, choice, by_library=engine.by_library).value,
        schedule=expression_of(choice),
        ops=(op,),
        gain=(min(gains), max(gains)),
        loss=max(us / min(us, point.fastest_us) - 1 for us, point in times),
        sizes=tuple(point.size for _, point in times),
        implementation=implementation_at_all(advices) if choice is stretch.choice else "",
        nodes=scenario.num_ranks // (scenario.system.fabric.node_size or scenario.num_ranks),
    )


def _verdict(stretch: Stretch, choice: OpChoice, *, by_library: bool) -> Verdict:
    if stretch.points[0].advice.scenario.is_algorithm_choice:
        return Verdict.LIBRARY if by_library else Verdict.USE
    verdicts = (point.advice.verdict for point in stretch.points)
    return rule_verdict(verdicts, is_serial=choice.template == BASELINE.name)
