"""From sizes to rules: advice for each size, few schedules for all, and where one gives way to the next."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from ...compiler.ir import Choice, Scenario
from ...compiler.planning.build import build_schedule
from ...compiler.planning.expression import expression_of
from ...compiler.resolve.expect.expectation import ON_OVERLAP, Verdict
from ...compiler.templates import BASELINE
from ..candidates.advice import Advice, Confidence, is_algorithm_choice
from ..many import Ask
from .axis import BYTES, SizeAxis
from .cover import TOLERANCE, AdvisedSize, Stretch, cover
from .refine import first_of_next, multiple_of
from .table import PolicyRule, PolicyTable

MAX_ROUNDS, ROUND = 3, 16
"""How often sizes beside flips are added, in multiples of so many grains."""

_LEAST_FIRST = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


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
        The relative loss that a rule may have at a size of ``sizes`` so that there are fewer rules.
    """
    known = _points(axis, set(sizes), ask)
    for rounds_left in reversed(range(MAX_ROUNDS)):
        points = [known[size] for size in sorted(known)]
        stretches = cover(points, tolerance)
        starts = [points[0].size]
        for left, right in pairwise(stretches):
            starts.append(first_of_next(axis, left, right, simulated=simulated))
        # Between two sizes a third schedule may be the best: what is best next to a flip is asked, not concluded.
        beside = {size for flip in starts[1:] if (size := _before(axis, flip)) not in known and size > points[0].size}
        if not beside or not rounds_left:
            break
        known |= _points(axis, beside, ask)
    ends = [*(start - 1 for start in starts[1:]), points[-1].size]
    rules = [
        _rule(axis, stretch, ends_at)
        for stretch, ends_at in zip(stretches, zip(starts, ends, strict=True), strict=True)
    ]
    fallback = [_fallback(axis, rule, stretch) for rule, stretch in zip(rules, stretches, strict=True)]
    advices = [point.advice for point in points]
    confidence = min((advice.confidence for advice in advices), key=_LEAST_FIRST.index)
    marks = tuple(dict.fromkeys(mark for advice in advices for mark in advice.marks))
    return PolicyTable((*rules, *_joined(filter(None, fallback))), simulated, confidence.value, marks)


def _points(axis: SizeAxis, sizes: Set[int], ask: Ask[Scenario, Advice]) -> dict[int, AdvisedSize]:
    ordered = sorted(sizes)
    answers = ask([axis.at(size) for size in ordered])
    return {size: AdvisedSize(size, answer()) for size, answer in zip(ordered, answers, strict=True)}


def _before(axis: SizeAxis, flip: int) -> int:
    """A size below ``flip`` that most schedules can be cut for."""
    grain = axis.grain * ROUND
    return (flip - 1) // grain * grain if flip > grain else (flip - 1) // axis.grain * axis.grain


def _rule(axis: SizeAxis, stretch: Stretch, ends: tuple[int, int]) -> PolicyRule:
    return _rule_of(axis, stretch, ends, stretch.choice, multiple_of(axis, stretch.choice, stretch.points[0].size))


def _fallback(axis: SizeAxis, rule: PolicyRule, stretch: Stretch) -> PolicyRule | None:
    """Return a rule for the sizes between those that ``rule`` can cut: the fastest schedule that fits all of them."""
    if rule.multiple_of <= axis.grain:
        return None
    size, tables = stretch.points[0].size, [point.times_us() for point in stretch.points]
    everywhere = (choice for choice in tables[0] if all(choice in table for table in tables))
    fits = (choice for choice in everywhere if multiple_of(axis, choice, size) <= axis.grain)
    choice = next(fits, stretch.points[0].advice.serial.choice)
    return None if choice is None else _rule_of(axis, stretch, (rule.least, rule.most), choice, axis.grain)


def _joined(rules: Iterable[PolicyRule]) -> Iterator[PolicyRule]:
    """Yield ``rules``, neighbours that say the same as one."""
    last: PolicyRule | None = None
    for rule in rules:
        if last is not None and last.most + 1 == rule.least:
            grown = replace(last, most=rule.most, sizes=(*last.sizes, *rule.sizes))
            if replace(rule, least=last.least, sizes=grown.sizes) == grown:
                last = grown
                continue
        if last is not None:
            yield last
        last = rule
    if last is not None:
        yield last


def _rule_of(axis: SizeAxis, stretch: Stretch, ends: tuple[int, int], choice: Choice, multiple: int) -> PolicyRule:
    scenario = stretch.points[0].advice.scenario
    workload, gemm = scenario.workload, scenario.workload.gemm
    dtype = gemm.dtype if gemm is not None else workload.tensors[0].dtype
    own = choice is stretch.choice
    times = [(point.times_us().get(choice, point.advice.serial.best_us), point.advice) for point in stretch.points]
    gains = [advice.serial.best_us / us for us, advice in times]
    engine = build_schedule(scenario, choice).engine
    return PolicyRule(
        pattern=workload.pattern.value,
        gpu=scenario.gpu.name,
        ranks=scenario.num_ranks,
        topology=scenario.system.fabric.topology.name,
        dtype=dtype.value,
        n=None if gemm is None or axis.field == BYTES else gemm.n,
        k=None if gemm is None or axis.field == BYTES else gemm.k,
        axis=axis.field,
        least=ends[0],
        most=ends[1],
        multiple_of=multiple,
        verdict=_verdict(stretch, choice, by_library=engine.by_library).value,
        schedule=expression_of(choice),
        template=choice.template,
        algorithm=choice.algorithm or (choice.template if is_algorithm_choice(scenario) else ""),
        protocol=choice.tactics.protocol.value,
        chunks=choice.chunks,
        copy_engines=engine.copy_engines,
        copy_sms=engine.copy_sms,
        gain=(min(gains), max(gains)),
        loss=max(0.0, *(us / advice.recommended.best_us - 1 for us, advice in times)),
        sizes=tuple(point.size for point in stretch.points),
        implementation=_implementation(stretch) if own else "",
        nodes=scenario.num_ranks // (scenario.system.fabric.node_size or scenario.num_ranks),
    )


def _verdict(stretch: Stretch, choice: Choice, *, by_library: bool) -> Verdict:
    """The verdict on ``choice``: the least of all sizes, since a promise holds at all of them or is none."""
    if is_algorithm_choice(stretch.points[0].advice.scenario):
        return Verdict.LIBRARY if by_library else Verdict.USE
    if choice.template == BASELINE.name and choice is not stretch.choice:
        return Verdict.SERIAL
    verdicts = {point.advice.verdict for point in stretch.points}
    return next(verdict for verdict in reversed(ON_OVERLAP) if verdict in verdicts)


def _implementation(stretch: Stretch) -> str:
    """The implementation that pays at all sizes, the one with the least sum of times; empty if there is none."""
    times: dict[str, list[float]] = {}
    for point in stretch.points:
        offers = point.advice.implementations
        for offer in () if offers is None else offers.paying:
            times.setdefault(offer.name, []).append(offer.us)
    everywhere = {name: sum(each) for name, each in times.items() if len(each) == len(stretch.points)}
    return min(everywhere, key=everywhere.__getitem__, default="")
