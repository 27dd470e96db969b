"""From a sweep of a workload to rules for all sizes: where schedules give way, and which sizes each can be cut for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...compiler.codes import Code
from ...compiler.from_model.request import LayerRequest, layer_scenario
from ...compiler.ir import Cancelled, OpChoice, OpMode, Part, Scenario, Schedule, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.build import ScheduleError
from ...compiler.planning.plan import build_plan
from ...compiler.request.request import RequestError
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.from_text import SERIAL
from ...compiler.templates import BASELINE
from ...compiler.text.diagnostics import CompileError
from ...simcore.program.program import PACKET_BYTES
from ..answer.stages import AdviceOptions
from ..candidates.advice import Advice
from ..layers.joint import simulated
from .build import table_of
from .cover import PRECISION, TOLERANCE
from .table import OpRule, PolicyRule, PolicyTable
from .workload_sweep import Simulate, WorkloadPoint, WorkloadRule, WorkloadSweep, workload_swept

TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class SettingAxis:
    """Workloads that differ in one size: ``at`` returns that of a size, which the file or a request calls ``field``.

    ``at`` raises ``CompileError`` or ``RequestError`` for a size that cannot be. ``model`` is that of a request.
    """

    field: str
    at: Callable[[int], Scenario]
    model: str = ""


def layer_policy(
    axis: SettingAxis,
    sizes: Sequence[int],
    advise: Callable[[Scenario], Advice],
    simulate: Simulate,
    *,
    tolerance: float = TOLERANCE,
) -> PolicyTable:
    """Return rules for all sizes of ``axis`` from the least of ``sizes`` on, as ``workload_swept`` finds them.

    Raises
    ------
    ScheduleError
        If the workload cannot be carried out at one of ``sizes``.
    Cancelled
        If ``advise`` or ``simulate`` was stopped: a table with gaps is none.
    """
    points = [(((axis.field, str(size)),), axis.at(size)) for size in sorted(set(sizes))]
    sweep = workload_swept(points, advise, simulate, tolerance=tolerance)
    if sweep.interrupted:
        raise Cancelled
    return policy_of(sweep, axis, simulate)


def policy_of(sweep: WorkloadSweep, axis: SettingAxis, simulate: Simulate) -> PolicyTable:
    """Return the rules of a finished ``sweep`` over sizes of ``axis``; where two schedules meet, both are simulated.

    Raises
    ------
    Cancelled
        If ``simulate`` was stopped.
    """
    of_sizes = {int(dict(point.settings)[axis.field]): point for point in sweep.points}
    choices = {choice.name: choice for choice in sweep.schedules}
    rules, starts = sweep.rules, [min(of_sizes)]
    for left, right in pairwise(rules):
        ends = _ends(left, axis)[1], _ends(right, axis)[0]
        starts.append(_flip(axis, (choices[left.schedule], choices[right.schedule]), ends, of_sizes[ends[0]], simulate))
    lasts = [*(start - 1 for start in starts[1:]), max(of_sizes)]
    found = []
    for rule, least, most in zip(rules, starts, lasts, strict=True):
        first, last = _ends(rule, axis)
        inside = {size: point for size, point in of_sizes.items() if first <= size <= last}
        found.append(_rule(rule, axis, choices[rule.schedule], (least, most), inside))
    return table_of(found, [point.advice for point in sweep.points], simulated=True)


def _ends(rule: WorkloadRule, axis: SettingAxis) -> tuple[int, int]:
    return int(dict(rule.first)[axis.field]), int(dict(rule.last)[axis.field])


def _rule(
    rule: WorkloadRule, axis: SettingAxis, choice: Schedule, ends: tuple[int, int], points: dict[int, WorkloadPoint]
) -> PolicyRule:
    scenario = next(iter(points.values())).advice.scenario
    return PolicyRule(
        workload=scenario.name,
        model=axis.model,
        gpu=scenario.system.gpu.name,
        ranks=scenario.num_ranks,
        topology=scenario.system.fabric.topology.name,
        axis=axis.field,
        least=ends[0],
        most=ends[1],
        multiple_of=_multiple_of(axis, choice, tuple(points)),
        verdict=(Verdict.SERIAL if choice == SERIAL else Verdict.OVERLAP).value,
        schedule=choice.name,
        ops=ops_of(scenario, choice),
        choice=choice,
        gain=rule.gain,
        loss=rule.loss,
        sizes=tuple(points),
        nodes=scenario.num_ranks // (scenario.system.fabric.node_size or scenario.num_ranks),
    )


def ops_of(scenario: Scenario, choice: Schedule) -> tuple[OpRule, ...]:
    """Return what ``choice`` does in one layer, part by part.

    Raises
    ------
    ScheduleError
        If it cannot be carried out.
    """
    plan, beside = build_plan(scenario.system, scenario.workload, choice, 1), dict(choice.starts_with)
    modes = {mode.op: mode for mode in choice.modes}
    return tuple(_op_rule(part, modes.get(part.op), choice, beside.get(part.op, "")) for part in plan.parts)


def _op_rule(part: Part, mode: OpMode | None, choice: Schedule, beside: str) -> OpRule:
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
        starts_with=beside if part.shape.is_collective else "",
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
    known: WorkloadPoint,
    simulate: Simulate,
) -> int:
    """The first size from which the second schedule is taken, to ``PRECISION``: between ``ends`` both are simulated.

    Where one of them cannot be carried out at a size between, the sizes down to the first end are left to it.
    """
    low, high = ends
    step = 1 << max(0, (high - low).bit_length() - 5)  # sizes between as round as the ends are
    while high - low > max(step, PRECISION * low):
        middle = (low + high) // 2 // step * step
        if not low < middle < high:
            break
        times = [_ticks(axis, middle, choice, known.advice, simulate) for choice in choices]
        first, second = times
        if second is not None and (first is None or second < first):
            high = middle
        else:
            low = middle
    return high


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
    options: AdviceOptions,
    advise: Callable[[Scenario, AdviceOptions], Advice],
    *,
    tolerance: float = TOLERANCE,
    reported: Callable[[int, int], None] = lambda done, total: None,
    should_stop: ShouldStop = never,
) -> PolicyTable:
    """Return which schedule of a layer to use for which number of tokens; ``told`` of the sizes that are advised.

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
        advice = advise(scenario, replace(options, within_s=None))
        if advice.interrupted:
            raise Cancelled
        done += 1
        reported(done, len(requested))
        return advice

    axis = SettingAxis(TOKENS, lambda size: layer_scenario(replace(request, tokens=size)), request.model.name)
    return layer_policy(axis, requested, advised, across(should_stop), tolerance=tolerance)
