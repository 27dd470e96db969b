"""The first difference between the ranks of a Program, in a sentence.

Ranks are compared by declared servers and pools and by local ids of ops; the reference is the value
that most ranks have. This only explains; folding is decided without it.
"""

from collections.abc import Iterator

import numpy as np

from ..program.arrays import NONE, Int64Array
from ..program.program import Program
from .adjacency import Places, UInt64Array, distinct, mix, op_attributes, row_sums

Table = Int64Array | UInt64Array
"""[things, ranks]: a thing is alike at all ranks if its row is constant."""


def asymmetry(program: Program) -> str:
    """The first thing found that is not the same at every rank."""
    if program.ranks_simulated == 1:
        return "there is only one rank"
    places = Places.of(program)
    for differences in (_between_servers, _between_pools, _between_ops, _between_flows):
        for sentence in differences(program, places):
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


def _between_servers(program: Program, places: Places) -> Iterator[str]:
    """Speeds of servers that every rank uses."""
    ranks = program.ranks_simulated
    used = np.flatnonzero(np.diff(places.server_hop_ptr).reshape(-1, ranks).min(axis=1))  # [declared servers in use]
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


def _between_pools(program: Program, places: Places) -> Iterator[str]:
    """Slots of pools that every rank uses."""
    ranks = program.ranks_simulated
    used = np.flatnonzero(np.diff(places.pool_op_ptr).reshape(-1, ranks).min(axis=1))  # [declared pools in use]
    names = [program.pool_names[number] for number in used]
    table = program.pool_slots.reshape(-1, ranks)[used]
    if (found := _odd_one(table)) is not None:
        pool, odd, usual = found
        words = "fewer" if table[pool, odd] < table[pool, usual] else "more"
        yield f"pool {names[pool]}[{odd}] has {words} slots than {names[pool]}[{usual}]"


def _between_ops(program: Program, places: Places) -> Iterator[str]:
    """Kind, work and waits of ops with the same local id."""
    ranks = program.ranks_simulated
    own = np.flatnonzero(program.op_local_id != NONE)
    counts = np.bincount(program.op_rank[own], minlength=ranks)
    if (found := _odd_one(counts[None])) is not None:
        _, odd, usual = found
        yield f"rank {odd} has {counts[odd]} ops and rank {usual} has {counts[usual]}"
        return
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
