"""SMs that are left to the kernels of a plan while SMs copy, for each part.

SMs that copy for a part are taken from the kernels that may run meanwhile, for as long as these run: not from kernels
that the plan keeps behind the copies, or the copies behind them. Kernels that may run at one time share SMs, so all of
them get as many as the one to which least is left.
"""

from collections.abc import Iterator, Mapping

from ...compiler.ir import Awaited, GraphPlan, Part, System, Transfer

MAIN_STREAM = 0


def sms_of_parts(system: System, plan: GraphPlan) -> tuple[int, ...]:
    """Return for each part how many SMs its kernels have, and its copies that queue for the SMs of kernels."""
    own = tuple(part.schedule.compute_sms for part in plan.parts)
    taken: dict[int, int] = {}  # nodes that copy, by the SMs that do nothing else
    for at, part in enumerate(plan.parts):
        engine = part.schedule.engine
        if part.workload.moved is not None and not engine.leaves_all_sms:
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
            if part.workload.is_collective:
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
                    if other.workload.is_collective:
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
                new = list(_places(left & self._beside(place)))
                for other in new:
                    left &= ~self._users(other)
                group += new
            yield group

    def most_beside(self, place: int, taken: Mapping[int, int]) -> int:
        """The most SMs that copy for another part when this one runs on SMs of kernels; ``taken`` has their nodes."""
        beside = self._beside(place) & ~_nodes(place)
        return max((sms for sms, nodes in taken.items() if beside & nodes), default=0)

    def _users(self, place: int) -> int:
        """The nodes of a part that run on the SMs of kernels."""
        kernels, copies = 2 * place, 2 * place + 1
        on_them = self.there[copies] and self.parts[place].schedule.engine.on_kernels_sms
        return (1 << kernels if self.there[kernels] else 0) | (1 << copies if on_them else 0)

    def _beside(self, place: int) -> int:
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
