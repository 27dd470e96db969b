"""What parts of a plan wait for in each other, by names and by ops, and the SMs that each part has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...compiler.ir import (
    Awaited,
    Kernels,
    OpCase,
    OpPlan,
    Part,
    PartWait,
    Plan,
    Step,
    System,
    TileGroup,
    Transfer,
)
from .machine import is_one_kernel
from .state import Foreign, Lowering
from .steps import signals_at


@dataclass(frozen=True, slots=True)
class Ends:
    """What others may wait for in a part that is lowered: ops by rank.

    They are there for each ``Awaited``, each kernel by name, and for what arrives by the name of its signal.
    """

    stream: int
    in_kernels: bool  # whether it ends in kernels alone
    parts: dict[Awaited, tuple[tuple[int, ...], ...]]
    kernels: dict[str, tuple[tuple[int, ...], ...]]
    signals: dict[str, tuple[tuple[int, ...], ...]]

    def of(self, name: str) -> tuple[tuple[int, ...], ...]:
        """The ops of a kernel, or of what arrives by a signal."""
        return self.kernels[name] if name in self.kernels else self.signals[name]


def foreign_of(part: Part, ends: Mapping[str, Ends]) -> dict[str, Foreign]:
    """What the steps of ``part`` wait for in parts with these ``ends``, by the name that ``with_waits`` gives it."""
    found = {}
    for wait in part.waits:
        other = ends[wait.on]
        before = wait.what is Awaited.END and other.in_kernels and other.stream == part.stream
        found[_whole(wait)] = Foreign(other.parts[wait.what], before)
    for step in part.step_waits:
        other = ends[step.on]
        before = step.of in other.kernels and other.stream == part.stream
        found[_single(step.on, step.of)] = Foreign(other.of(step.of), before)
    return found


def with_waits(scenario: OpCase, part: Part, schedule: OpPlan) -> OpPlan:
    """``schedule`` whose steps also name what they wait for in other parts.

    Steps that share a launch or a call wait at the launch instead: at the gates of the lowered part.
    """
    if not part.waits and not part.step_waits:
        return schedule
    held = is_one_kernel(scenario, schedule) or (schedule.engine.by_library and scenario.shape.is_collective)

    def waiting(steps: Sequence[Step]) -> tuple[Step, ...]:
        if held:
            return tuple(steps)
        return tuple(
            replace(step, after=tuple(dict.fromkeys((*step.after, *names))))
            for step, names in zip(steps, _names(part, schedule, steps), strict=True)
        )

    overridden = {each.rank: waiting(schedule.steps_of(each.rank)) for each in schedule.overrides}
    return replace(
        schedule,
        steps=waiting(schedule.steps),
        by_rank=tuple(waiting(steps) for steps in schedule.by_rank),
        overrides=tuple(
            replace(each, step=next(step for step in overridden[each.rank] if step.name == each.step.name))
            for each in schedule.overrides
        ),
    )


def _names(part: Part, schedule: OpPlan, steps: Sequence[Step]) -> Iterator[list[str]]:
    """For each of ``steps`` the names of what it waits for in other parts.

    That of a whole part the copies wait for that wait for no step of their own plan, and the first kernel of each
    stream; the others come after these.
    """
    by_step: dict[str, list[str]] = {}
    for wait in part.step_waits:
        by_step.setdefault(wait.step, []).append(_single(wait.on, wait.of))
    every = [_whole(wait) for wait in part.waits]
    for_copies = [_whole(wait) for wait in part.waits if not wait.kernels_only]
    persistent, streams = schedule.tactics.kernel is Kernels.PERSISTENT, set[int]()
    for step in steps:
        names = by_step.get(step.name, [])
        if isinstance(step, Transfer):
            yield names + (for_copies if not waits_inside(step) else [])
            continue
        first = step.stream not in streams
        streams.add(step.stream)
        gated = persistent and part.shape.gemm is not None
        yield names + (every if first and not gated else [])


def waits_inside(step: Step) -> bool:
    """Whether a step waits for anything in its own plan."""
    return not all(name.startswith(_MARK) for name in step.after)


_MARK = "@"
"""Begins the names of what is in other parts, which no step of a plan has."""


def _whole(wait: PartWait) -> str:
    return f"{_MARK}{wait.on} {wait.what.name}"


def _single(part: str, step: str) -> str:
    return f"{_MARK}{part}.{step}"


def ends_of_part(state: Lowering, part: Part, before: Sequence[Sequence[int]]) -> Ends:
    """What others may wait for in a part that has been lowered; it waits for ``before``, by rank."""
    ranks = range(state.period)
    signals = [_signals(state, rank) for rank in ranks]
    arrived = tuple(tuple(dict.fromkeys(chain(*each.values()))) for each in signals)
    awaited = {name for step in state.schedule.steps if not isinstance(step, Transfer) for name in step.after}
    arriving = {arrival.transfer.signal for arrival in state.hits.arrivals(0)}
    return Ends(
        stream=part.stream,
        in_kernels=not part.shape.is_collective and arriving <= awaited,
        parts={
            Awaited.END: tuple(tuple(_all_of(state, rank, arrived[rank], before[rank])) for rank in ranks),
            Awaited.ARRIVED: arrived,
            Awaited.BEGUN: tuple(tuple(_begun(state, rank)) for rank in ranks),
        },
        kernels={
            step.name: tuple((state.step_ops[rank, step.name].done,) for rank in ranks)
            for step in state.schedule.steps
            if not isinstance(step, Transfer) and all((rank, step.name) in state.step_ops for rank in ranks)
        },
        signals={name: tuple(tuple(one.get(name, ())) for one in signals) for name in dict.fromkeys(chain(*signals))},
    )


def _signals(state: Lowering, rank: int) -> dict[str, list[int]]:
    """The ends of the transfers that arrive at ``rank``, by their signals."""
    senders = signals_at(state, rank).items()
    return {name: list(dict.fromkeys(state.step_ops[each].done for each in of_it)) for name, of_it in senders}


def _all_of(state: Lowering, rank: int, arrived: Iterable[int], before: Iterable[int]) -> list[int]:
    """The op that is done when everything is over at ``rank``: its steps, what arrives there, and looks at flags.

    Where there is nothing, as at a rank from which others get what it has, that is what the part waits for.
    """
    own = [ops.done for (at, _), ops in state.step_ops.items() if at == rank]
    looks = [op for (at, _), op in state.kernels.seen.items() if at == rank]
    ops = sorted({*own, *arrived, *looks} or {*before})
    return ops if len(ops) == 1 else [state.join(rank, "end", ops)]


def _begun(state: Lowering, rank: int) -> Iterable[int]:
    """The launches of the kernels that begin a part, or what a lone collective begins with."""
    kernels = [step for step in state.schedule.steps_of(rank) if isinstance(step, TileGroup)]
    gates = state.gates.get(rank, [])
    if not kernels or (gates and not state.waiters[rank, kernels[0].name].queued):
        return tuple(gates)
    return tuple(state.waiters[rank, kernels[0].name].on_kernels)


MAIN_STREAM = 0


def sms_of_parts(system: System, plan: Plan) -> tuple[int, ...]:
    """Return for each part how many SMs its kernels have, and its copies that queue for the SMs of kernels."""
    own = tuple(part.schedule.compute_sms for part in plan.parts)
    taken: dict[int, int] = {}  # nodes that copy, by the SMs that do nothing else
    for at, part in enumerate(plan.parts):
        engine = part.schedule.engine
        if part.shape.moved is not None and not engine.leaves_all_sms:
            taken[engine.count] = taken.get(engine.count, 0) | 1 << 2 * at + 1
    if len(plan.parts) == 1 or not taken:
        return own
    order, found = _Order(plan.parts), dict[int, int]()
    for together in order.together():
        least = min(min(own[place], system.gpu.sms - order.most_beside(place, taken)) for place in together)
        found |= dict.fromkeys(together, least)
    any_of_these = min(found.values(), default=system.gpu.sms)  # where nothing needs any
    return tuple(found.get(place, any_of_these) for place in range(len(own)))


class _Order:
    """What of a plan is over before what else begins, at every rank.

    Each part has two nodes, its kernels and its copies: twice its place, and one more. Sets are the bits of an integer.
    """

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.places = {part.name: place for place, part in enumerate(parts)}
        steps = [part.schedule.by_rank or (part.schedule.steps,) for part in parts]
        has = [[[not isinstance(step, Transfer) for step in own] for own in of_part] for of_part in steps]
        # Where a rank has no kernel, or no copy, nothing is behind what these are behind.
        self.whole = [all(copies in own for own in each) for each in has for copies in (True, False)]
        self.there = [any(copies in own for own in each) for each in has for copies in (True, False)]
        self.before = [0] * (2 * len(parts))
        self.behind = [0] * (2 * len(parts))
        edges = [(node, first) for node, firsts in enumerate(self._edges()) for first in firsts]
        for node, first in edges:
            self.before[node] |= 1 << first | (self.before[first] if self.whole[first] else 0)
        for node, first in reversed(edges):
            self.behind[first] |= 1 << node | (self.behind[node] if self.whole[node] else 0)

    def _edges(self) -> Iterator[list[int]]:
        """For each node those that it waits for, all in parts before its own."""
        for place, part in enumerate(self.parts):
            kernels, copies = self._in_streams(place), list[int]()
            if part.shape.is_collective:
                copies = list(kernels)
            for wait in part.waits:
                if wait.what is Awaited.END:
                    nodes = [2 * self.places[wait.on], 2 * self.places[wait.on] + 1]
                    kernels += nodes
                    copies += [] if wait.kernels_only else nodes
            yield kernels
            yield copies

    def _in_streams(self, place: int) -> list[int]:
        """What comes before the kernels of a part, or a lone collective, in the streams that it follows."""
        part, found = self.parts[place], list[int]()
        for stream in {part.stream, MAIN_STREAM if part.behind_kernels else part.stream}:
            for at in range(place - 1, -1, -1):
                other = self.parts[at]
                if other.stream == stream:
                    if other.shape.is_collective:
                        found += [2 * at, 2 * at + 1]
                        break
                    if _in_one_stream(other):
                        found.append(2 * at)
                        break
        return found

    def together(self) -> Iterator[list[int]]:
        """Yield the parts that may run on SMs of kernels at one time, or each beside one that may beside the next."""
        left = 0
        for place in range(len(self.parts)):
            left |= self._users(place)
        while left:
            group = [next(_places(left))]
            left &= ~self._users(group[0])
            for place in group:
                new = list(_places(left & self._at_the_same_time(place)))
                for other in new:
                    left &= ~self._users(other)
                group += new
            yield group

    def most_beside(self, place: int, taken: Mapping[int, int]) -> int:
        """The most SMs that copy for another part when this one runs on SMs of kernels; ``taken`` has their nodes."""
        others = self._at_the_same_time(place) & ~_nodes(place)
        return max((sms for sms, nodes in taken.items() if others & nodes), default=0)

    def _users(self, place: int) -> int:
        """The nodes of a part that run on the SMs of kernels."""
        kernels, copies = 2 * place, 2 * place + 1
        on_them = self.there[copies] and self.parts[place].schedule.engine.on_kernels_sms
        return (1 << kernels if self.there[kernels] else 0) | (1 << copies if on_them else 0)

    def _at_the_same_time(self, place: int) -> int:
        """The nodes of all parts that may run when a part does on the SMs of kernels."""
        users, found = self._users(place), 0
        for node in (2 * place, 2 * place + 1):
            if users >> node & 1:
                found |= ~(self.before[node] | self.behind[node])
        return found


def _nodes(place: int) -> int:
    """The kernels and the copies of a part."""
    return 3 << 2 * place


def _places(nodes: int) -> Iterator[int]:
    """The parts that ``nodes`` are of."""
    while nodes:
        place = (nodes.bit_length() - 1) // 2
        nodes &= ~_nodes(place)
        yield place


def _in_one_stream(part: Part) -> bool:
    """Whether the last kernel of a part ends after all the others."""
    schedule = part.schedule
    steps = (step for own in (schedule.by_rank or (schedule.steps,)) for step in own)
    return not schedule.engine.by_tiles and all(step.stream == 0 for step in steps if not isinstance(step, Transfer))
