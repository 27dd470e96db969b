"""Classes of parts of a Program that are alike, so that one of each can be simulated for all.

Servers, pools and ops are sorted into classes by colour refinement: all start with a colour made of their attributes,
and in each round take one made of their own and the colours of all they touch, until no class splits any more. Every
flow-hop tells its position in the order of ties at its server, every op its position in the queue of its pool. That is
what makes members of a class see their neighbours in the same order as well, and hence have the same times; and it
tells the neighbours of one server apart, so that it has one of each class. Nothing is said of ranks: disjoint rings of
3 and 5 ranks with the same program fold to one rank, nodes whose ranks differ fold to one node.

A symmetric program settles in one to three rounds. A defect in a ring takes a round for each rank on its way around,
only to find that nothing folds: so the number of rounds is limited. Colours are hashes; ``quotient`` checks the classes
without hashes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..program.arrays import NONE, Int64Array, take_rows
from ..program.program import Program
from .verify import Places, UInt64Array, distinct, mix, op_attributes, row_sums

Table = Int64Array | UInt64Array
"""[things, ranks]: a thing is alike at all ranks if its row is constant."""


def asymmetry(program: Program) -> str:
    """The first thing found that is not the same at every rank."""
    if program.ranks_simulated == 1:
        return "there is only one rank"
    for differences in (_between_servers, _between_pools, _between_counts):
        for sentence in differences(program):
            return sentence
    places = Places.of(program)  # which takes longer than all before
    for deep in (_between_ops, _between_flows):
        for sentence in deep(program, places):
            return sentence
    return "the ranks do the same, but wait for each other or reach each other in different patterns"


def _odd_one(table: Table) -> tuple[int, int, int] | None:
    """The first thing that is not alike at all ranks, as (thing, a rank that differs, a rank that is as most are)."""
    unlike = np.flatnonzero((table != table[:, :1]).any(axis=1))
    if not len(unlike):
        return None
    row = table[unlike[0]]
    _, first, counts = np.unique(row, return_index=True, return_counts=True)
    usual = first[counts.argmax()]
    return int(unlike[0]), int(np.flatnonzero(row != row[usual])[0]), int(usual)


def _between_servers(program: Program) -> Iterator[str]:
    """Speeds of servers that every rank uses."""
    ranks = program.ranks_simulated
    hops = np.bincount(program.hop_server, minlength=program.num_servers)
    used = np.flatnonzero(hops.reshape(-1, ranks).min(axis=1))  # [declared servers in use]
    names = [program.server_names[number] for number in used]
    for ticks, less, more in (
        (program.service_ticks, "is faster than", "is slower than"),
        (program.latency_ticks, "has a shorter latency than", "has a longer latency than"),
    ):
        table = ticks.reshape(-1, ranks)[used]
        if (found := _odd_one(table)) is not None:
            server, odd, usual = found
            words = less if table[server, odd] < table[server, usual] else more
            yield f"server {names[server]}[{odd}] {words} {names[server]}[{usual}]"


def _between_pools(program: Program) -> Iterator[str]:
    """Slots of pools that every rank uses."""
    ranks = program.ranks_simulated
    ops = np.bincount(program.op_pool[program.op_pool != NONE], minlength=len(program.pool_slots))
    used = np.flatnonzero(ops.reshape(-1, ranks).min(axis=1))  # [declared pools in use]
    names = [program.pool_names[number] for number in used]
    table = program.pool_slots.reshape(-1, ranks)[used]
    if (found := _odd_one(table)) is not None:
        pool, odd, usual = found
        words = "fewer" if table[pool, odd] < table[pool, usual] else "more"
        yield f"pool {names[pool]}[{odd}] has {words} slots than {names[pool]}[{usual}]"


def _between_counts(program: Program) -> Iterator[str]:
    """Numbers of ops."""
    counts = np.bincount(program.op_rank[program.op_local_id != NONE], minlength=program.ranks_simulated)
    if (found := _odd_one(counts[None])) is not None:
        _, odd, usual = found
        yield f"rank {odd} has {counts[odd]} ops and rank {usual} has {counts[usual]}"


def _between_ops(program: Program, places: Places) -> Iterator[str]:
    """Kind, work and waits of ops with the same local id, of which each rank has as many."""
    ranks = program.ranks_simulated
    own = np.flatnonzero(program.op_local_id != NONE)
    # Local ids count from 0 at every rank.
    ops = own[np.lexsort((program.op_rank[own], program.op_local_id[own]))].reshape(-1, ranks)  # [local id, rank]
    for columns, words in (
        (program.op_setup_ticks, "takes another setup time than"),
        (program.op_release_ticks, "is released at another time than"),
        (np.where(program.op_pool == NONE, NONE, program.op_pool // ranks), "queues for another pool than"),
        (op_attributes(program, places), "does other work than"),
        (_route_hashes(program, places), "takes another route than"),
        (_wait_hashes(program, places), "waits for other ops than"),
    ):
        if (found := _odd_one(columns[ops])) is not None:
            thing, odd, usual = found
            label = program.labels[program.op_label_idx[ops[thing, odd]]]
            yield f"op {label} of rank {odd} {words} at rank {usual}"


def _between_flows(program: Program, places: Places) -> Iterator[str]:
    """Servers that serve the same hop of several ranks.

    Where ops take the same ways and no server does, each serves every hop once, in the order of local ids.
    """
    hops = places.server_hops
    families = mix(program.op_local_id[places.hop_op[hops]], places.hop_slot[hops])  # [H] by server
    servers = program.hop_server[hops]
    by_family = np.lexsort((families, servers))
    twice = (np.diff(families[by_family]) == 0) & (np.diff(servers[by_family]) == 0)
    if twice.any():
        first, second = by_family[np.flatnonzero(twice)[0] :][:2]
        label = program.labels[program.op_label_idx[places.hop_op[hops[first]]]]
        of_ranks = sorted(program.op_rank[places.hop_op[hops[[first, second]]]].tolist())
        yield (
            f"server {program.server_name(int(servers[first]))} is shared: it serves op {label} "
            f"of rank {of_ranks[0]} and of rank {of_ranks[1]}"
        )


def _route_hashes(program: Program, places: Places) -> UInt64Array:
    """[O] declared servers on the way of all flows."""
    hops = places.op_hops
    declared = program.hop_server[hops] // program.ranks_simulated
    return row_sums(places.op_hop_ptr, mix(places.hop_slot[hops], declared))


def _wait_hashes(program: Program, places: Places) -> UInt64Array:
    """[O] set of local ids waited for."""
    num_ops = program.num_ops
    waiter = np.repeat(np.arange(num_ops), program.op_num_waits)
    stride = num_ops + 1  # local ids start at NONE
    pairs = distinct(waiter * stride + program.op_local_id[places.waits] - NONE)
    return row_sums(np.searchsorted(pairs // stride, np.arange(num_ops + 1)), mix(pairs % stride))


__all__ = ["MAX_ROUNDS", "Classes", "Refusal", "detect"]

MAX_ROUNDS = 8
"""Most rounds of refinement; more cost about as much as simulating everything."""

MOST_RANKS = 64
"""Ranks of which each pair is looked at first."""


@dataclass(frozen=True, slots=True)
class Classes:
    """A partition of a program's servers, pools and ops; that of flows and hops follows, by their place in the op."""

    server: Int64Array  # [S] class numbers
    pool: Int64Array  # [P]
    op: Int64Array  # [O]
    rounds: int  # of refinement


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program is not folded, in words; ``difference`` is the first between its ranks."""

    why: str
    difference: str = ""

    @property
    def reason(self) -> str:
        """All of it."""
        return f"{self.why}: {self.difference}" if self.difference else self.why


def by_local_id(program: Program) -> Classes | None:
    """Guess the classes: all ranks are alike, op by op. None if the program does not describe its ops by rank.

    Takes a fraction of the time of ``detect``; ``quotient`` checks the guess.
    """
    ranks, own = program.ranks_simulated, program.op_local_id != NONE
    counts = np.bincount(program.op_rank[own], minlength=ranks)
    if not own.all() or (counts != counts[0]).any():
        return None
    return Classes(
        np.arange(program.num_servers) // ranks, np.arange(len(program.pool_slots)) // ranks, program.op_local_id, 0
    )


def detect(program: Program, max_rounds: int = MAX_ROUNDS) -> Classes | Refusal:
    """Sort the servers, pools and ops of ``program`` into classes that have the same times.

    Programs that do not settle within ``max_rounds``, or have no two working ops alike, are refused.
    """
    works = np.diff(program.op_stage_ptr) > 0  # [O]; the rest only wait
    if not works.any():
        return Refusal("no op does any work")
    if program.ranks_simulated <= MOST_RANKS and _none_is_alike(program):
        return Refusal("no two ranks are alike", asymmetry(program))
    refinement = _Refinement(program)
    for rounds in range(1, max_rounds + 1):
        settled = not refinement.refine()
        if np.count_nonzero(np.bincount(refinement.op[works])) == np.count_nonzero(works):
            return Refusal("no two ranks are alike", asymmetry(program))
        if settled:
            return Classes(refinement.server, refinement.pool, refinement.op, rounds)
    return Refusal(f"what is alike is not settled after {max_rounds} rounds", asymmetry(program))


def _none_is_alike(program: Program) -> bool:
    """Whether no two ranks are alike by their setups and the units that ops of each pass at each other, refined.

    Of an irregular network these few numbers say so, where classes of all that is alike take as long as the run.
    """
    ranks = program.ranks_simulated
    sender = program.op_rank[program.stage_op[program.flow_stage[program.hop_flow]]]  # [H]
    pairs = sender * ranks + program.hop_server % ranks
    units = np.bincount(pairs, program.flow_units[program.hop_flow], ranks**2).reshape(ranks, ranks)
    colours, known = np.bincount(program.op_rank, program.op_setup_ticks, ranks).tolist(), 0
    while known < len(set(colours)) < ranks:
        known = len(set(colours))
        around = [sorted(zip(colours, units[rank], units[:, rank], strict=True)) for rank in range(ranks)]
        seen = [(colours[rank], units[rank, rank], *around[rank]) for rank in range(ranks)]
        numbers = {each: number for number, each in enumerate(dict.fromkeys(seen))}
        colours = [numbers[each] for each in seen]
    return len(set(colours)) == ranks


class _Refinement:
    """Colours of servers [S], pools [P] and ops [O], numbered from 0."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._places = places = Places.of(program)
        self.server = _numbered(mix(program.service_ticks, program.latency_ticks))
        self.pool = _numbered(mix(program.pool_slots))
        self.op = _numbered(mix(op_attributes(program, places), places.op_position, _depths(program)))
        # What a hop tells besides a colour never changes.
        buffers = (np.append(a, NONE)[program.hop_buffer] for a in (program.buffer_units, program.buffer_credit_ticks))
        self._hop_place = mix(places.hop_position, places.hop_slot, places.hop_way_out, *buffers)  # [H]

    def refine(self) -> bool:
        """One round; whether any class was split."""
        before = self._num_classes()
        self.server, self.pool, self.op = (
            _numbered(mix(self.server, self._seen_by_server())),
            _numbered(mix(self.pool, self._seen_by_pool())),
            _numbered(mix(self.op, self._pool_of_op(), self._seen_on_the_way(), *self._waited_for())),
        )
        return self._num_classes() > before

    def _num_classes(self) -> int:
        return sum(int(colours.max(initial=-1)) + 1 for colours in (self.server, self.pool, self.op))

    def _seen_by_server(self) -> UInt64Array:
        """[S] ops that pass, each with its position and the slot of its hop."""
        hops = self._places.server_hops
        return row_sums(self._places.server_hop_ptr, mix(self._hop_place[hops], self.op[self._places.hop_op[hops]]))

    def _seen_by_pool(self) -> UInt64Array:
        """[P] ops that queue, each with its position."""
        ops = self._places.pool_ops
        return row_sums(self._places.pool_op_ptr, mix(self._places.op_position[ops], self.op[ops]))

    def _pool_of_op(self) -> Int64Array:
        """[O] colour of the pool, NONE without one."""
        return np.append(self.pool, NONE)[self._program.op_pool]  # NONE is -1, the last

    def _seen_on_the_way(self) -> UInt64Array:
        """[O] servers passed, each with the slot of the hop and its position there."""
        hops = self._places.op_hops
        servers = self.server[self._program.hop_server[hops]]
        return row_sums(self._places.op_hop_ptr, mix(self._hop_place[hops], servers))

    def _waited_for(self) -> tuple[UInt64Array, UInt64Array]:
        """[O] sets of colours waited for and of colours whose flags are polled for.

        How many of each does not matter: all of them end at the same time.
        """
        places = self._places
        return self._sets(places.wait_ptr, places.waits), self._sets(places.flag_ptr, places.flags)

    def _sets(self, pointers: Int64Array, ops: Int64Array) -> UInt64Array:
        """[O] colours of the ``ops`` in each row of a table held as pointers, as a set."""
        num_ops = self._program.num_ops
        rows = np.repeat(np.arange(num_ops), np.diff(pointers))
        row, colour = np.divmod(distinct(rows * num_ops + self.op[ops]), max(1, num_ops))
        return row_sums(np.searchsorted(row, np.arange(num_ops + 1)), mix(colour))


def _numbered(hashes: UInt64Array) -> Int64Array:
    return np.unique(hashes, return_inverse=True)[1].astype(np.int64)


def _depths(program: Program) -> Int64Array:
    """[O] length of the longest chain of waits before the op, NONE on a cycle of waits.

    Ops of a class have the same, so this splits nothing that is alike; but it tells the ops of a long chain apart at
    once, where refinement would take a round for each.
    """
    waits = program.op_num_waits.copy()
    depths = np.full(program.num_ops, NONE, np.int64)
    depth, reached = 0, np.flatnonzero(waits == 0)
    while len(reached):
        depths[reached] = depth
        depth += 1
        _, edges = take_rows(program.op_next_ptr, reached)
        followers, times = np.unique(program.op_next[edges], return_counts=True)
        waits[followers] -= times
        reached = followers[waits[followers] == 0]
    return depths
