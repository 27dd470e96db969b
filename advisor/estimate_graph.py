"""What a step-level estimate follows: the kernels and transfers of one rank, and what each of them waits for."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ..compiler.scenario import GemmShape, Scenario
from ..compiler.schedule import Reduction, Schedule, Step, TileGroup, Transfer
from ..compiler.shapes import KernelShape
from ..simcore.kernels.pick import compute_shape, compute_work
from ..simcore.kernels.reduce import reduce_work
from ..simcore.kernels.work import KernelWork
from ..simcore.protocols import sent_per_byte
from .estimate_persistent import persistent_parts


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps by their index ``i`` in the plan.

    ``waits[i]`` is how many others step i waits for, ``next[i]`` are those that wait for it. ``work`` are kernels and
    sums with what is added to their launch in ticks, ``num_bytes[i]`` is what a transfer sends, 0 for others. Where
    launches are out of the way ``kernels_before`` are those before it in the plan that a kernel waits for; else it is
    empty.
    """

    waits: tuple[int, ...]
    next: tuple[tuple[int, ...], ...]
    work: Mapping[int, tuple[KernelWork, float]]
    num_bytes: tuple[int, ...]
    kernels_before: Mapping[int, tuple[int, ...]]


def graph_of(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> Graph:
    """The graph of the ``steps`` of one rank; what comes from steps that are not among them is there at once."""
    names = {step.name: i for i, step in enumerate(steps)}
    names |= {step.signal: i for i, step in enumerate(steps) if isinstance(step, Transfer)}
    persistent = persistent_parts(scenario, schedule, steps)
    work = _work(scenario, schedule, steps, names, persistent)
    before = _before(steps, names, {names[name] for name in persistent})
    following: list[list[int]] = [[] for _ in steps]
    for i, others in enumerate(before):
        for j in others:
            following[j].append(i)
    return Graph(
        waits=tuple(map(len, before)),
        next=tuple(map(tuple, following)),
        work=work,
        num_bytes=_num_bytes(scenario, schedule, steps),
        kernels_before={i: tuple(j for j in before[i] if j in work and j < i) for i in work} if persistent else {},
    )


def _before(steps: Sequence[Step], names: Mapping[str, int], groups: Set[int]) -> list[Set[int]]:
    """What each step waits for: what it names, and the step before it in its stream or lane.

    ``groups`` of persistent kernels wait for none of each other, and sums for all of them.
    """
    found: list[Set[int]] = []
    last: dict[tuple[bool, int], int] = {}
    for i, step in enumerate(steps):
        before = {names[name] for name in step.after if name in names}
        if isinstance(step, Transfer):
            queue = None if step.lane is None else (True, step.lane)
        else:
            queue = None if i in groups else (False, step.stream)
            before = before - groups if i in groups else before | groups
        if queue is not None:
            if queue in last:
                before.add(last[queue])
            last[queue] = i
        found.append(before)
    return found


def _num_bytes(scenario: Scenario, schedule: Schedule, steps: Sequence[Step]) -> tuple[int, ...]:
    width, sent = _width(scenario), sent_per_byte(schedule)
    return tuple(
        int(step.region.rows.size * step.region.cols.size * width * sent) if isinstance(step, Transfer) else 0
        for step in steps
    )


def _work(
    scenario: Scenario,
    schedule: Schedule,
    steps: Sequence[Step],
    names: Mapping[str, int],
    persistent: Mapping[str, KernelWork],
) -> dict[int, tuple[KernelWork, float]]:
    """The kernels and sums; those of equal shapes share one work. One that waits for a transfer is launched later."""
    width, sms, event = _width(scenario), schedule.compute_sms, float(scenario.gpu.launch.event_ticks)
    works: dict[tuple[GemmShape | KernelShape, bool] | tuple[int, int], KernelWork] = {}

    def work_of(step: TileGroup | Reduction) -> KernelWork:
        if isinstance(step, TileGroup):
            key = compute_shape(scenario, step), step.accumulate
            if key not in works:
                works[key] = compute_work(scenario, step, sms)
            return works[key]
        size = step.region.rows.size * step.region.cols.size * width, step.num_parts
        if size not in works:
            works[size] = reduce_work(scenario.gpu, *size, sms)
        return works[size]

    found: dict[int, tuple[KernelWork, float]] = {}
    for i, step in enumerate(steps):
        if not isinstance(step, Transfer):
            waits = any(name not in names or isinstance(steps[names[name]], Transfer) for name in step.after)
            found[i] = persistent.get(step.name) or work_of(step), event if waits else 0.0
    return found


def _width(scenario: Scenario) -> int:
    """Bytes of an element of what moves."""
    moved = scenario.workload.moved
    return moved.dtype.num_bytes if moved is not None else 0
