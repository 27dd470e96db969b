"""Rules about several ops: schedules compared at all sizes, where one gives way to the next, and what each op does.

Each schedule that is recommended at a size is simulated at all others, so that a rule says what it costs to keep one
schedule over a range.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from ...compiler.codes import Code
from ...compiler.from_model.request import LayerRequest, layer_scenario
from ...compiler.ir import Cancelled, OpChoice, OpMode, Part, Scenario, Schedule, ShouldStop
from ...compiler.ir.stopping import Counted
from ...compiler.planning.build import ScheduleError, expression_of_schedule
from ...compiler.planning.plan import build_plan
from ...compiler.request.request import RequestError
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.templates import BASELINE
from ...compiler.text.diagnostics import CompileError
from ...simcore.program.program import PACKET_BYTES
from ..candidates.advice import Advice
from ..candidates.candidate import ScheduleOrigin
from ..layers.joint import simulated
from .cover import TOLERANCE, flip
from .table import OpRule, PolicyRule, PolicyTable, SweepPoint, implementation_at_all, rule_verdict, table_of

TOKENS = "tokens"
Simulate = Callable[[Scenario, Schedule, Advice], int | None]
"""The ticks of a schedule at a size with that advice, None where it cannot be carried out."""


@dataclass(frozen=True, slots=True)
class SettingAxis:
    """Workloads that differ in one size: ``at`` returns that of a size, which the file or a request calls ``field``.

    ``at`` raises ``CompileError`` or ``RequestError`` for a size that cannot be. ``model`` is that of a request.
    """

    field: str
    at: Callable[[int], Scenario]
    model: str = ""

    def size_of(self, point: SweepPoint) -> int:
        """Return the size of a point."""
        return int(dict(point.settings)[self.field])


def timed_everywhere(points: Sequence[SweepPoint], simulate: Simulate | None) -> tuple[SweepPoint, ...]:
    """Return ``points`` with names for the recommended schedules, and the times of each of these at all points.

    Without ``simulate`` times are those that the advice has. Of one schedule that several files or searches call
    differently the first name counts; names of files are kept, others are numbered.

    Raises
    ------
    Cancelled
        If ``simulate`` was stopped.
    """
    named = _named([point.advice for point in points])
    return tuple(_timed(point, named, simulate) for point in points)


def _named(advices: Sequence[Advice]) -> dict[str, Schedule]:
    """No overlap and the recommended schedules, by what they say."""
    taken = {choice.name for advice in advices for choice in advice.scenario.schedules}
    named: dict[str, Schedule] = {said_of(SERIAL): SERIAL}
    for advice in advices:
        best, said = advice.recommended, said_of(_recommended(advice))
        if said in named:
            continue
        declared = best.origin is ScheduleOrigin.DECLARED and best.expression in taken
        free = (name for place in count(1) if (name := f"{best.expression}_{place}") not in taken)
        name = best.expression if declared else next(free)
        taken.add(name)
        named[said] = replace(best.joint, name=name)
    return named


def said_of(choice: Schedule) -> str:
    """What a schedule says; its name where an op is said in outline."""
    try:
        return expression_of_schedule(choice)
    except ScheduleError:
        return choice.name


def _recommended(advice: Advice) -> Schedule:
    """The recommended schedule; no overlap for any in which nothing overlaps."""
    return SERIAL if advice.recommended.is_serial else advice.recommended.joint


def _timed(point: SweepPoint, named: Mapping[str, Schedule], simulate: Simulate | None) -> SweepPoint:
    advice = point.advice
    best = said_of(_recommended(advice))
    ticks: dict[str, int | None] = {SERIAL.name: advice.no_overlap.ticks, named[best].name: advice.recommended.ticks}
    for choice in named.values():
        if choice.name not in ticks and simulate is not None:
            ticks[choice.name] = simulate(advice.scenario, choice, advice)
    in_order = ((choice.name, ticks.get(choice.name)) for choice in named.values())
    able = {name: each for name, each in in_order if each is not None}
    return replace(point, choice=named[best], ticks=able)


def layer_rules(
    axis: SettingAxis, points: Sequence[SweepPoint], simulate: Simulate, tolerance: float = TOLERANCE
) -> tuple[PolicyRule, ...]:
    """Return the fewest rules for all sizes of ``axis`` between those of ``points``, which are ``timed_everywhere``.

    Each has a schedule that is at most ``tolerance`` behind the fastest at its points; where two meet, both are
    simulated.

    Raises
    ------
    Cancelled
        If ``simulate`` was stopped.
    """
    points = sorted(points, key=axis.size_of)
    choices = {point.choice.name: point.choice for point in points if point.choice is not None} | {SERIAL.name: SERIAL}
    ranges = list(_ranges(points, tolerance))
    starts = [axis.size_of(points[0])]
    for (left, before), (right, behind) in pairwise(ranges):
        ends = axis.size_of(before[-1]), axis.size_of(behind[0])
        starts.append(_flip(axis, (choices[left], choices[right]), ends, before[-1], simulate))
    lasts = [*(start - 1 for start in starts[1:]), axis.size_of(points[-1])]
    each = zip(ranges, starts, lasts, strict=True)
    return tuple(_rule(axis, choices[name], (least, most), inside) for (name, inside), least, most in each)


def _ranges(points: Sequence[SweepPoint], tolerance: float) -> Iterator[tuple[str, Sequence[SweepPoint]]]:
    """Yield the fewest runs of neighbouring points, each with a schedule that is near the best at all of them."""
    left = points
    while left:
        lengths = {name: _reach(left, name, tolerance) for name in left[0].ticks}
        length = max(lengths.values())
        here, left = left[:length], left[length:]
        able = [name for name, reach in lengths.items() if reach == length]
        losses = {name: (name != SERIAL.name, _loss(here, name)) for name in able}  # no overlap where it does
        yield min(losses, key=lambda each: losses[each]), here


def _reach(points: Sequence[SweepPoint], name: str, tolerance: float) -> int:
    """At how many of the first points a schedule is near the best."""
    far = (place for place, point in enumerate(points) if _loss([point], name) > tolerance)
    return next(far, len(points))


def _loss(points: Sequence[SweepPoint], name: str) -> float:
    """How far a schedule is behind the best, at the worst of ``points``."""
    return max(
        point.ticks[name] / min(point.ticks.values()) - 1 if name in point.ticks else float("inf") for point in points
    )


def layer_policy(
    axis: SettingAxis,
    sizes: Sequence[int],
    advise: Callable[[Scenario], Advice],
    simulate: Simulate,
    *,
    tolerance: float = TOLERANCE,
) -> PolicyTable:
    """Return rules for all sizes of ``axis`` from the least to the greatest of ``sizes``.

    Raises
    ------
    ScheduleError
        If the workload cannot be carried out at one of ``sizes``.
    Cancelled
        If ``advise`` or ``simulate`` was stopped: a table with gaps is none.
    """
    answers = [SweepPoint(((axis.field, str(size)),), advise(axis.at(size))) for size in sorted(set(sizes))]
    points = timed_everywhere(answers, simulate)
    rules = layer_rules(axis, points, simulate, tolerance)
    return table_of(rules, [point.advice for point in points], points, simulated=True)


def _rule(axis: SettingAxis, choice: Schedule, ends: tuple[int, int], points: Sequence[SweepPoint]) -> PolicyRule:
    advices = [point.advice for point in points]
    scenario, sizes = advices[0].scenario, tuple(map(axis.size_of, points))
    gains = [point.advice.serial.ticks / point.ticks[choice.name] for point in points]
    verdict = rule_verdict((advice.verdict for advice in advices), is_serial=choice == SERIAL)
    multiple = _multiple_of(axis, choice, sizes)
    worth = multiple if choice == SERIAL else int(ends[0] * (min(gains) - 1))  # what is added costs less than it gains
    return PolicyRule(
        workload=scenario.name,
        model=axis.model,
        gpu=scenario.system.gpu.name,
        ranks=scenario.num_ranks,
        topology=scenario.system.fabric.topology.name,
        axis=axis.field,
        least=ends[0],
        most=ends[1],
        multiple_of=multiple,
        pad=max(0, min(multiple - 1, worth)),
        verdict=verdict.value,
        schedule=choice.name,
        ops=ops_of(scenario, choice),
        choice=choice,
        gain=(min(gains), max(gains)),
        loss=max(_loss([point], choice.name) for point in points),
        sizes=sizes,
        implementation=implementation_at_all(advices),
        nodes=scenario.num_ranks // (scenario.system.fabric.node_size or scenario.num_ranks),
    )


def ops_of(scenario: Scenario, choice: Schedule) -> tuple[OpRule, ...]:
    """Return what ``choice`` does in one layer, part by part.

    Raises
    ------
    ScheduleError
        If it cannot be carried out.
    """
    plan, starts_with = build_plan(scenario.system, scenario.workload, choice, 1), dict(choice.starts_with)
    modes = {mode.op: mode for mode in choice.modes}
    return tuple(_op_rule(part, modes.get(part.op), choice, starts_with.get(part.op, "")) for part in plan.parts)


def _op_rule(part: Part, mode: OpMode | None, choice: Schedule, starts_with: str) -> OpRule:
    """What a part does; a kernel that is whole has no schedule."""
    place = OpRule(part.name, part.op, None, stream=part.stream, priority=part.priority)
    if part.shape.moved is None:
        return replace(place, schedule=part.schedule.expression) if part.op in choice.chained else place
    said = None if mode is None else mode.separate or mode.body
    how = said if isinstance(said, OpChoice) else None
    engine = part.schedule.engine
    return replace(
        place,
        schedule=part.schedule.expression,
        template=BASELINE.name if said is None else how.template if how is not None else "",
        algorithm=how.algorithm if how is not None else "",
        protocol=how.tactics.protocol.value if how is not None else "",
        chunks=how.chunks if how is not None else 0,
        copy_engines=engine.copy_engines,
        copy_sms=engine.copy_sms,
        starts_with=starts_with if part.shape.is_collective else "",
    )


def _multiple_of(axis: SettingAxis, choice: Schedule, sizes: Sequence[int]) -> int:
    """A number whose multiples, near the least of ``sizes``, are sizes that ``choice`` can be carried out for.

    It is a power of two that divides all of them, or the least of them where none does.
    """
    multiple = 1
    while all(size % multiple == 0 for size in sizes):
        if all(_can_be(axis, choice, sizes[0] + multiple * more) for more in (1, 3)):
            return multiple
        multiple *= 2
    return sizes[0]


def _can_be(axis: SettingAxis, choice: Schedule, size: int) -> bool:
    try:
        scenario = axis.at(size)
        build_plan(scenario.system, scenario.workload, choice, 1)
    except (ScheduleError, CompileError, RequestError):
        return False
    return True


def _flip(
    axis: SettingAxis,
    choices: tuple[Schedule, Schedule],
    ends: tuple[int, int],
    known: SweepPoint,
    simulate: Simulate,
) -> int:
    """The first size from which the second schedule is taken, to ``PRECISION``: between ``ends`` both are simulated.

    Where one of them cannot be carried out at a size between, the sizes down to the first end are left to it.
    """
    low, high = ends
    step = 1 << max(0, (high - low).bit_length() - 5)  # sizes between as round as the ends are

    def gives_way(size: int) -> bool:
        first, second = (_ticks(axis, size, choice, known.advice, simulate) for choice in choices)
        return second is not None and (first is None or second < first)

    return flip(low, high, step, gives_way)


def _ticks(axis: SettingAxis, size: int, choice: Schedule, advice: Advice, simulate: Simulate) -> int | None:
    try:
        return simulate(axis.at(size), choice, advice)
    except (CompileError, RequestError):
        return None


def across(should_stop: ShouldStop) -> Simulate:
    """Return how a schedule of one size is simulated at another: all layers, as finely as the advice there."""

    def ticks(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
        unit = advice.recommended.unit_bytes or PACKET_BYTES
        result = simulated(scenario.system, scenario.workload, choice, unit, should_stop, fine=True)
        return None if result is None else result.total_ticks

    return ticks


def layer_table(
    request: LayerRequest,
    sizes: Sequence[int],
    advise: Callable[[Scenario], Advice],
    should_stop: ShouldStop,
    *,
    tolerance: float = TOLERANCE,
    progress: Counted | None = None,
) -> PolicyTable:
    """Return which schedule of a layer to use for which number of tokens; ``progress`` hears of the sizes advised.

    Raises
    ------
    RequestError
        If there are no sizes, or one does not fit.
    Cancelled
        If ``should_stop`` returned true: a table with gaps is none.
    """
    if not sizes:
        raise RequestError(Code.MGS306, TOKENS, "no sizes are given")
    requested = sorted({replace(request, tokens=size).tokens for size in sizes})  # each is checked
    done = 0

    def advised(scenario: Scenario) -> Advice:
        nonlocal done
        advice = advise(scenario)
        if advice.interrupted:
            raise Cancelled
        done += 1
        if progress is not None:
            progress(done, len(requested))
        return advice

    axis = SettingAxis(TOKENS, lambda size: layer_scenario(replace(request, tokens=size)), request.model.name)
    return layer_policy(axis, requested, advised, across(should_stop), tolerance=tolerance)
