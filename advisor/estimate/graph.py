"""The graph of a step-level estimate: kernels and transfers of one rank, or of all, and their dependences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, groupby
from operator import itemgetter

from ...compiler.ir import (
    Direction,
    Kernels,
    KernelShape,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Step,
    TileGroup,
    Transfer,
    num_sharing,
)
from ...simcore.kernels.dispatch import (
    by_stream,
    compute_shape,
    reduce_work,
    shared_works,
    stream_parts,
    stream_work,
    work_of,
)
from ...simcore.kernels.work import KernelWork
from ...simcore.lower.machine import is_one_kernel, looks_for_parts, sent_per_byte
from ...simcore.lower.one_kernel import as_kernels, sum_work
from ...simcore.lower.state import moved_bytes
from ...simcore.lower.waits import poll_ticks


def persistent_parts(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> Mapping[str, KernelWork]:
    """Return the part of each group of a rank in its stream's kernel, by name; empty for launched kernels."""
    if schedule.tactics.kernel is not Kernels.PERSISTENT or scenario.shape.gemm is None:
        return {}
    parts, sms = dict[str, KernelWork](), schedule.compute_sms
    for groups in by_stream(steps).values():
        parts |= stream_parts(scenario, stream_work(scenario, schedule, groups), groups, sms, away={})
    return parts


Size = tuple[KernelShape, bool] | tuple[int, int]
"""What a kernel computes, and whether it adds to its output; or the bytes of a sum, and how many parts it has."""


@dataclass(frozen=True, slots=True)
class StepGraph:
    """Steps by their index ``i``, the steps of each of ``num_ranks`` ranks in the order of its plan.

    ``rank[i]`` is the rank of step i, ``waits[i]`` the number of steps that it waits for, ``next[i]`` are those that
    wait for it. ``kind[i]`` is the number of the kind of a copy, -1 for other steps; ``kinds`` are the rank and a copy
    of each. ``sizes`` are those of kernels and sums, ``late`` the ones that wait for a transfer. ``persistent`` are
    parts of persistent kernels, and ``kernels_before`` the earlier kernels that each waits for; else both are empty.

    What depends on engines: ``work`` are kernels and sums with the ticks added to their launch, ``num_bytes[i]`` the
    bytes that a transfer sends, 0 for other steps, ``num_sharing[r]`` among how many the SMs that copy at rank r are
    shared.
    """

    steps: tuple[Step, ...]
    num_ranks: int
    rank: tuple[int, ...]
    waits: tuple[int, ...]
    next: tuple[tuple[int, ...], ...]
    kind: tuple[int, ...]
    kinds: tuple[tuple[int, Transfer], ...]
    sizes: Mapping[int, Size]
    late: Set[int]
    persistent: Mapping[int, KernelWork]
    kernels_before: Mapping[int, tuple[int, ...]]
    work: Mapping[int, tuple[KernelWork, float]] = field(default_factory=dict)
    num_sharing: tuple[int, ...] = ()
    num_bytes: tuple[int, ...] = ()

    def by_engine(self, scenario: OpCase, schedule: OpPlan) -> "StepGraph":
        """Return the graph of a ``schedule`` with the same plan, whose engine may be another."""
        plans = groupby(zip(self.rank, self.steps, strict=True), key=itemgetter(0))
        sharing = {rank: num_sharing((step for _, step in own), schedule.engine) for rank, own in plans}
        return replace(
            self,
            work=_work(scenario, schedule, self),
            num_bytes=_num_bytes(scenario, schedule, self.steps),
            num_sharing=tuple(sharing.get(rank, 1) for rank in range(self.num_ranks)),
        )


def graph_of(scenario: OpCase, schedule: OpPlan, num_ranks: int) -> StepGraph:
    """Return the graph of the first ``num_ranks`` ranks of a plan, which all others repeat."""
    whole = as_kernels(scenario, schedule)
    plans = [whole.steps_of(rank) for rank in range(num_ranks)]
    firsts = [0, *accumulate(map(len, plans))]
    before: list[Set[int]] = []
    sizes, late = dict[int, Size](), set[int]()
    persistent, kernels_before = dict[int, KernelWork](), dict[int, tuple[int, ...]]()
    signals = _signals(plans, firsts)
    names = [{step.name: i for i, step in enumerate(steps, first)} for first, steps in zip(firsts, plans, strict=False)]
    for rank, (first, steps, landing) in enumerate(zip(firsts, plans, signals, strict=False)):
        here = scenario.at(rank) if num_ranks > 1 else scenario
        own = names[rank]
        parts = {own[name]: work for name, work in persistent_parts(here, whole, steps).items()}
        before += _before(first, steps, own, landing, parts.keys(), streams=not looks_for_parts(scenario, whole))
        for step in (each for each in steps if isinstance(each, Transfer)):
            there = (rank + step.peer) % len(plans)
            for name in step.peer_after:
                awaited = {names[there][name]} if name in names[there] else {*signals[there].get(name, ())}
                before[own[step.name]] = before[own[step.name]] | awaited
        persistent |= parts
        sizes |= (own_sizes := _sizes(here, first, steps))
        late |= {*_waiting_steps(first, steps)}
        if parts:
            kernels_before |= {i: tuple(j for j in before[i] if j in sizes and j < i) for i in own_sizes}
    following: list[list[int]] = [[] for _ in before]
    for i, others in enumerate(before):
        for j in others:
            following[j].append(i)
    kind, kinds = _kinds(plans)
    graph = StepGraph(
        steps=tuple(chain.from_iterable(plans)),
        num_ranks=len(plans),
        rank=tuple(rank for rank, steps in enumerate(plans) for _ in steps),
        waits=tuple(map(len, before)),
        next=tuple(map(tuple, following)),
        kind=kind,
        kinds=kinds,
        sizes=sizes,
        late=late,
        persistent=persistent,
        kernels_before=kernels_before,
    )
    return graph.by_engine(scenario, schedule)


def _kinds(plans: Sequence[Sequence[Step]]) -> tuple[tuple[int, ...], tuple[tuple[int, Transfer], ...]]:
    """Return the kind of each copy, -1 for other steps, and the kinds; copies of one differ in what they move.

    All that their paths and the costs of an engine depend on is the same.
    """
    numbers: dict[tuple[int, int, bool, bool, bool, bool], int] = {}
    kind: list[int] = []
    kinds: list[tuple[int, Transfer]] = []
    for rank, steps in enumerate(plans):
        for step in steps:
            if not isinstance(step, Transfer):
                kind.append(-1)
                continue
            puts, to_all = step.direction is Direction.PUT, step.reach is Reach.ALL
            number = numbers.setdefault((rank, step.peer, puts, to_all, step.reduce, step.lane is None), len(kinds))
            kind.append(number)
            if number == len(kinds):
                kinds.append((rank, step))
    return tuple(kind), tuple(kinds)


Senders = dict[str, list[int]]
"""Indices of the transfers that set a signal."""


def _signals(plans: Sequence[Sequence[Step]], firsts: Sequence[int]) -> list[Senders]:
    """Return for each rank the transfers that set its signals; several may set one signal by puts to all."""
    num_ranks = len(plans)
    senders: list[Senders] = [{} for _ in plans]
    for rank, (first, steps) in enumerate(zip(firsts, plans, strict=False)):
        for i, step in enumerate(steps, first):
            if not isinstance(step, Transfer):
                continue
            if step.direction is not Direction.PUT:
                senders[rank].setdefault(step.signal, []).append(i)
            elif step.reach is not Reach.ALL:
                senders[(rank + step.peer) % num_ranks].setdefault(step.signal, []).append(i)
            else:
                for landing in senders:
                    landing.setdefault(step.signal, []).append(i)
    return senders


def _before(
    first: int, steps: Sequence[Step], own: Mapping[str, int], landing: Senders, groups: Set[int], *, streams: bool
) -> list[Set[int]]:
    """Return the steps that each step of a rank waits for: by name, and the step before it in its stream or lane.

    ``first`` is the index of the rank's first step, ``own`` are those of all by name, and ``landing`` the transfers
    that set its signals. The ``groups`` of a persistent kernel do not wait for each other, but for those of another
    stream that they name; sums wait for all. Without ``streams`` sums do not wait for each other either.
    """
    waits: list[Set[int]] = []
    last: dict[tuple[bool, int], int] = {}
    mates: dict[int, set[int]] = {}
    for i, step in enumerate(steps, first):
        if i in groups and isinstance(step, TileGroup):
            mates.setdefault(step.stream, set()).add(i)
    for i, step in enumerate(steps, first):
        before: Set[int] = set()
        for name in step.after:
            before |= {own[name]} if name in own else {*landing.get(name, ())}
        if isinstance(step, Transfer):
            queue = None if step.lane is None else (True, step.lane)
        else:
            queue = (False, step.stream) if streams and i not in groups else None
            if groups:
                before = before - mates[step.stream] if i in groups else before | groups
        if queue is not None:
            if queue in last:
                before = before | {last[queue]}
            last[queue] = i
        waits.append(before)
    return waits


def _num_bytes(scenario: OpCase, schedule: OpPlan, steps: Iterable[Step]) -> tuple[int, ...]:
    sent = sent_per_byte(schedule)
    times, parts = sent.numerator, sent.denominator
    return tuple(
        moved_bytes(scenario, step.region) * times // parts if isinstance(step, Transfer) else 0 for step in steps
    )


def _sizes(scenario: OpCase, first: int, steps: Sequence[Step]) -> dict[int, Size]:
    """Return the sizes of the kernels and sums of a rank, whose first step has the index ``first``."""
    sizes = dict[int, Size]()
    for i, step in enumerate(steps, first):
        if isinstance(step, TileGroup):
            sizes[i] = compute_shape(scenario, step), step.accumulate
        elif isinstance(step, Reduction):
            sizes[i] = moved_bytes(scenario, step.region), step.num_parts
    return sizes


def _waiting_steps(first: int, steps: Sequence[Step]) -> Iterator[int]:
    """Yield the kernels and sums of a rank that wait for a transfer."""
    kernels = {step.name for step in steps if not isinstance(step, Transfer)}
    for i, step in enumerate(steps, first):
        if step.name in kernels and not kernels.issuperset(step.after):
            yield i


def _work(scenario: OpCase, schedule: OpPlan, graph: StepGraph) -> dict[int, tuple[KernelWork, float]]:
    """Return the kernels and sums of a graph, of equal sizes one; those that wait for a transfer launch later."""
    gpu, sms, event = scenario.gpu, schedule.compute_sms, float(scenario.gpu.launch.event_ticks)
    shared = dict[int, KernelWork]()
    for rank in range(graph.num_ranks if schedule.tactics.kernel is Kernels.SHARING else 0):
        own = {graph.steps[i].name: i for i in range(len(graph.steps)) if graph.rank[i] == rank}
        here = scenario.at(rank) if graph.num_ranks > 1 else scenario
        found = shared_works(here, schedule, [graph.steps[i] for i in own.values()])
        shared |= {own[name]: work for name, work in found.items()}
    looks = looks_for_parts(scenario, schedule)
    alone = is_one_kernel(scenario, schedule)  # its sums are no kernels of their own
    works = dict[Size, KernelWork]()

    def work_at(i: int) -> KernelWork:
        if i in graph.persistent or i in shared:
            return graph.persistent.get(i) or shared[i]
        size = graph.sizes[i]
        work = works.get(size)  # a size is hashed by all its parts
        if work is None:
            first, second = size
            if not isinstance(first, int):
                work = work_of(gpu, first, sms, accumulate=bool(second))
            elif alone:
                work = sum_work(scenario, schedule, first, second)
            else:
                work = reduce_work(gpu, first, second, sms)
                work = replace(work, start_ticks=poll_ticks(gpu)) if looks else work
            works[size] = work
        return work

    return {i: (work_at(i), event if i in graph.late and not (alone or looks) else 0.0) for i in graph.sizes}
