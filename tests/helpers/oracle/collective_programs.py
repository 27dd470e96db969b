"""Collectives as programs: each algorithm written once, for one rank with relative peers, on fabrics inside and between
nodes.

``units`` is what each GPU holds in all: before a reduce_scatter, after an all_gather, throughout the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import Flow, OpKind, OpSpec, Program, Stage, TrafficClass

Offset = tuple[int, int]  # nodes further, places further
Times = tuple[int, int]  # service of a unit, latency, in ticks


class Collective(Enum):
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"


class Algorithm(Enum):
    RING = "ring"  # through all ranks, node after node
    DIRECT = "direct"  # to every peer
    HIERARCHICAL = "hierarchical"  # to every peer in the node, and between nodes among those at the same place


class Fabric(Enum):
    """What joins the GPUs of a node; those of two nodes are joined by a NIC each."""

    MESH = "mesh"
    RING = "ring"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class System:
    """GPUs ``node * places + place``; times are small by default, so that much happens at the same time."""

    nodes: int = 1
    places: int = 4
    fabric: Fabric = Fabric.MESH
    engines: int = 2  # DMA slots of a GPU
    setup_ticks: int = 5
    gap_ticks: int = 1
    window_units: int = 0
    buffer_units: int = 0  # room at links, ports and NICs
    credit_ticks: int = 0
    poll_ticks: int = 0  # interval at which consumers look for what arrives; 0 for none
    unit_bytes: int = 128
    hbm: Times = (2, 10)
    link: Times = (5, 30)
    nic: Times = (7, 90)

    @property
    def num_ranks(self) -> int:
        return self.nodes * self.places


@dataclass(frozen=True, slots=True)
class Step:
    """One transfer of every rank, or of the ranks ``by``, to the peer ``to``; ``after`` all of these have arrived."""

    to: Offset
    units: int
    reduces: bool = False
    after: tuple[int, ...] = ()
    by: tuple[int, ...] | None = None


class WrittenPlan:
    """Steps in the order in which a rank issues them. ``through``: the place after the last is in the next node."""

    def __init__(self, system: System, units: int) -> None:
        self.system, self.units, self.through = system, units, False
        self.steps: list[Step] = []

    def share(self, parts: int) -> int:
        return -(-self.units // parts)

    def add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def ring(self, to: Offset, units: Sequence[int], after: Sequence[int] = (), *, reduces: bool = False) -> list[int]:
        """Steps to the same peer, each of what the one before has brought; the first is after all of ``after``."""
        added: list[int] = []
        for amount in units:
            added.append(self.add(Step(to, amount, reduces, tuple(added[-1:] or after))))
        return added

    def direct(
        self, peers: Sequence[Offset], units: int, after: Sequence[int] = (), *, reduces: bool = False
    ) -> list[int]:
        return [self.add(Step(to, units, reduces, tuple(after))) for to in peers]

    @property
    def in_node(self) -> list[Offset]:
        return [(0, place) for place in range(1, self.system.places)]

    @property
    def on_rail(self) -> list[Offset]:
        return [(node, 0) for node in range(1, self.system.nodes)]

    @property
    def others(self) -> list[Offset]:
        return [divmod(peer, self.system.places) for peer in range(1, self.system.num_ranks)]


def _ring(plan: WrittenPlan, kind: Collective) -> None:
    plan.through, ranks = True, plan.system.num_ranks
    chunks = [plan.share(ranks)] * (ranks - 1)
    if kind is Collective.BROADCAST:  # the root's chunks follow each other through all but the last
        for number, chunk in enumerate([*chunks, *chunks[:1]]):
            plan.add(Step((0, 1), chunk, after=(number,), by=tuple(range(ranks - 1))))
        return
    if kind is Collective.ALL_TO_ALL:  # what is for the next, and for all beyond
        plan.ring((0, 1), [plan.share(ranks) * beyond for beyond in range(ranks - 1, 0, -1)])
        return
    done: list[int] = []
    if kind is not Collective.ALL_GATHER:
        done = plan.ring((0, 1), chunks, reduces=True)
    if kind is not Collective.REDUCE_SCATTER:
        plan.ring((0, 1), chunks, done[-1:])


def _direct(plan: WrittenPlan, kind: Collective) -> None:
    chunk = plan.share(plan.system.num_ranks)
    if kind is Collective.BROADCAST:
        for to in plan.others:
            plan.add(Step(to, plan.units, by=(0,)))
        return
    reduces = kind in (Collective.REDUCE_SCATTER, Collective.ALL_REDUCE)
    done = plan.direct(plan.others, chunk, reduces=reduces)
    if kind is Collective.ALL_REDUCE:
        plan.direct(plan.others, chunk, done)


def _hierarchical(plan: WrittenPlan, kind: Collective) -> None:
    nodes, places = plan.system.nodes, plan.system.places
    rail = [plan.share(plan.system.num_ranks)] * (nodes - 1)
    if kind is Collective.BROADCAST:
        sent = [plan.add(Step(to, plan.units, by=(0,))) for to in plan.on_rail]
        for to in plan.in_node:
            plan.add(Step(to, plan.units, after=tuple(sent), by=tuple(range(0, nodes * places, places))))
        return
    if kind is Collective.ALL_TO_ALL:
        plan.direct(plan.on_rail, plan.share(nodes), plan.direct(plan.in_node, plan.share(places)))
        return
    done: list[int] = []
    if kind is not Collective.ALL_GATHER:
        done = plan.direct(plan.in_node, plan.share(places), reduces=True)
        done = plan.ring((1, 0), rail, done, reduces=True) or done
    if kind is not Collective.REDUCE_SCATTER:
        done = plan.ring((1, 0), rail, done) or done
        plan.direct(plan.in_node, plan.share(places), done)


ALGORITHMS: dict[Algorithm, Callable[[WrittenPlan, Collective], None]] = {
    Algorithm.RING: _ring,
    Algorithm.DIRECT: _direct,
    Algorithm.HIERARCHICAL: _hierarchical,
}


def collective(kind: Collective, algorithm: Algorithm, system: System, units: int, *, folded: bool = False) -> Program:
    """A collective as a program; ``folded``, of one rank, if they all do the same."""
    plan = WrittenPlan(system, units)
    ALGORITHMS[algorithm](plan, kind)
    return _Machine(plan, folded).program()


def symmetric(kind: Collective, algorithm: Algorithm, system: System) -> bool:
    """Whether all ranks do the same, with peers counted around nodes and places."""
    if kind is Collective.BROADCAST:
        return False
    return algorithm is not Algorithm.RING or min(system.nodes, system.places) == 1


def hierarchical_all_reduce(nodes: int, places: int, units: int, *, folded: bool) -> Program:
    """Lines of 128 bytes on GPUs with 3.35 TB/s of memory, joined by links of 50 GB/s and NICs of 50 GB/s."""
    system = System(
        nodes,
        places,
        engines=max(1, places - 1),
        setup_ticks=100_000_000,
        gap_ticks=256_000,
        hbm=(3_821, 31_000_000),
        link=(256_000, 50_000_000),
        nic=(256_000, 150_000_000),
    )
    return collective(Collective.ALL_REDUCE, Algorithm.HIERARCHICAL, system, units, folded=folded)


class _Machine:
    """The servers of a system, and the ops of a plan on it."""

    def __init__(self, plan: WrittenPlan, folded: bool) -> None:
        self.plan, self.system, self.folded = plan, plan.system, folded
        system = plan.system
        self.builder = ProgramBuilder(system.num_ranks, period=1 if folded else None, unit_bytes=system.unit_bytes)
        self.hbm = self.builder.server("hbm", *system.hbm)
        self.links = [self.server(f"link+{place}", system.link) for place in range(system.places)]
        self.out, self.into = self.server("out", system.link), self.server("in", system.link)
        self.nic_out, self.nic_in = self.server("nic_out", system.nic), self.server("nic_in", system.nic)
        self.engines, self.sms = self.builder.pool("dma", system.engines), self.builder.pool("sms", 2)
        self.ranks = range(1 if folded else system.num_ranks)

    def server(self, name: str, times: Times) -> int:
        room, credit = self.system.buffer_units, self.system.credit_ticks
        return self.builder.server(name, *times, buffer_units=room, credit_ticks=credit)

    def peer(self, rank: int, nodes: int, places: int) -> int:
        """Folded, ranks are left unwrapped: then equal offsets are equal differences, which is what buffers go by."""
        if self.folded or self.plan.through:
            beyond = rank + nodes * self.system.places + places
            return beyond if self.folded else beyond % self.system.num_ranks
        node, place = divmod(rank, self.system.places)
        return (node + nodes) % self.system.nodes * self.system.places + (place + places) % self.system.places

    def route(self, rank: int, step: Step) -> tuple[tuple[int, int], ...]:
        system, target = self.system, self.peer(rank, *step.to)
        if rank // system.places != target // system.places:
            middle = [(self.nic_out, rank), (self.nic_in, target)]
        else:
            middle = self.in_node(rank, target)
        return ((self.hbm, rank), *middle, (self.hbm, target), *[(self.hbm, target)] * step.reduces)

    def in_node(self, rank: int, target: int) -> list[tuple[int, int]]:
        places = self.system.places
        further = (target - rank) % places
        match self.system.fabric:
            case Fabric.MESH:
                return [(self.links[further], rank)]
            case Fabric.SWITCH:
                return [(self.out, rank), (self.into, target)]
            case Fabric.RING:  # a link to the right and one to the left, whichever way is shorter
                way, count = (1, further) if 2 * further <= places else (-1, places - further)
                return [(self.links[way % places], self.peer(rank, 0, way * hop)) for hop in range(count)]

    def program(self) -> Program:
        builder, system = self.builder, self.system
        sent: dict[tuple[int, int], int] = {}  # (step, rank) -> op
        if self.folded and any(step.by is not None for step in self.plan.steps):
            raise ValueError("ranks that do not do the same cannot be described by one")
        if self.folded and self.plan.through and min(system.nodes, system.places) > 1:
            raise ValueError("in a ring through several nodes the last rank of each has another way to go")
        for number, step in enumerate(self.plan.steps):
            for rank in self.ranks if step.by is None else step.by:
                flow = Flow(
                    self.route(rank, step), step.units, system.gap_ticks, 0, TrafficClass.COMM, system.window_units
                )
                kind = OpKind.REDUCE if step.reduces else OpKind.TRANSFER
                (sent[number, rank],) = builder.op(
                    rank, OpSpec(kind, "send", [Stage(0, (flow,))], pool=self.engines, setup_ticks=system.setup_ticks)
                )
        for (number, rank), op in sent.items():
            builder.after([op], self.arrivals(sent, self.plan.steps[number].after, rank))
        if system.poll_ticks:
            self.consumers(sent)
        return builder.build()

    def arrivals(self, sent: dict[tuple[int, int], int], steps: Sequence[int], rank: int) -> list[int]:
        """Ops that bring what the steps bring to a rank."""
        found = []
        for number in steps:
            nodes, places = self.plan.steps[number].to
            sender = 0 if self.folded else self.peer(rank, -nodes, -places)
            found += [sent[number, sender]] if (number, sender) in sent else []
        return found

    def consumers(self, sent: dict[tuple[int, int], int]) -> None:
        """For each step an op that polls for what it brings, and reads it; a rank works on two at a time."""
        for number, step in enumerate(self.plan.steps):
            for rank in self.ranks:
                here = ((self.hbm, rank),)
                look, read = Flow(here, 1, traffic=TrafficClass.FLAGS), Flow(here, step.units, 1)
                stages = [Stage(self.system.poll_ticks, (look,), polls=True), Stage(0, (read,))]
                ops = self.builder.op(rank, OpSpec(OpKind.TILE, "consumer", stages, pool=self.sms))
                self.builder.flags(ops, self.arrivals(sent, (number,), rank))
