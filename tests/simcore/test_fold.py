"""Folding what is alike: every time of every op, flow and server comes out as without it, and wrong folds are refused."""

import random
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magus.compiler.plan import build_schedule
from magus.compiler.scenario import Fabric
from magus.compiler.schedule import Choice, EngineChoice, EngineKind
from magus.simcore.engine import run
from magus.simcore.fold import Classes, Refusal, detect
from magus.simcore.layout import NONE
from magus.simcore.lower import lower
from magus.simcore.outcome import NEVER, Outcome, Run
from magus.simcore.program import Flow, OpKind, Program, ProgramBuilder, Stage
from magus.simcore.quotient import Condition, Folded, FoldError, expand, quotient
from tests.oracle import Oracle
from tests.scenarios import ag_gemm, full_mesh, gemm_rs, ring, switch
from tests.strategies import symmetric_program

TIMES = ("op_ready", "op_start", "op_done", "flow_last", "server_free", "server_busy_ticks")


def fold(program: Program) -> Folded:
    classes = detect(program)
    assert isinstance(classes, Classes), classes
    return quotient(program, classes)


def same(one: Run, other: Run) -> bool:
    scalars = [(found.outcome, found.makespan_ticks, found.line_hops, found.stuck) for found in (one, other)]
    return scalars[0] == scalars[1] and all(np.array_equal(getattr(one, t), getattr(other, t)) for t in TIMES)


def assert_exact(program: Program, folded: Folded) -> None:
    """The expanded run has the integers of the oracle, and those of the engine on the whole program."""
    found, expected = expand(folded, run(folded.program)), Oracle(program).run()

    assert found.op_ready.tolist() == expected.ready
    assert found.op_start.tolist() == expected.start
    assert found.op_done.tolist() == expected.done
    assert found.flow_last.tolist() == expected.flow_last
    assert found.server_free.tolist() == expected.server_free
    assert (found.makespan_ticks, found.line_hops) == (expected.makespan, expected.line_hops)
    assert same(found, run(program))


# What programs are lowered to.


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("fabric", [full_mesh(), ring(), switch()])
@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
def test_lowered_plans_fold_to_one_rank(make, ranks: int, fabric: Fabric) -> None:  # type: ignore[no-untyped-def]
    scenario = make(256, 512, 512, ranks=ranks, fabric=fabric)
    dma, sm = EngineChoice(EngineKind.DMA, max(1, ranks - 1)), EngineChoice(EngineKind.SM, 8)
    for choice in (
        *(Choice("serial", ranks, dma), Choice("shard_p2p", ranks, dma), Choice("hetero_fused_1d", 2 * ranks, sm)),
        *(Choice("uniform_fused_2d", 4 * ranks, dma), Choice("hetero_unfused_1d", 2 * ranks, dma, 4)),
    ):
        schedule = build_schedule(scenario, choice)
        program = lower(scenario, schedule, unit_bytes=8192, fold=False).program
        described = lower(scenario, schedule, unit_bytes=8192).program  # one rank, folded by the lowering

        folded = fold(program)

        assert folded.num_rank_classes == 1
        assert folded.program.num_flows == described.num_flows
        assert folded.program.num_line_hops * ranks == folded.represented_line_hops == program.num_line_hops
        assert same(expand(folded, run(folded.program)), run(program))
        assert set(folded.multiplicity[folded.program.op_kind == OpKind.TRANSFER].tolist()) == {ranks}
    assert_exact(program, folded)  # the oracle is slow: the last of them only


# Random programs, the same on every rank but for a perturbation.


@dataclass(frozen=True)
class Spmd:
    """A program for ranks (node, place in the node): ops with relative routes and waits."""

    nodes: int
    places: int
    servers: tuple[tuple[int, int], ...]  # service, latency
    pools: tuple[int, ...]
    ops: tuple[tuple[Stage, int | None, int, int, int], ...]  # route ranks are offsets; pool, setup, release, count
    waits: tuple[tuple[int, int, int], ...]  # op, op waited for, offset

    def peer(self, rank: int, offset: int) -> int:
        """Offsets count nodes and places in a torus; from 100 on they mean place 0 of the node."""
        node, place = divmod(rank, self.places)
        if offset >= 100:
            return (node + offset) % self.nodes * self.places
        return (node + offset // self.places) % self.nodes * self.places + (place + offset) % self.places

    def build(self, rng: random.Random, perturbation: str) -> Program:
        num_ranks = self.nodes * self.places
        builder = ProgramBuilder(num_ranks, folded=False, unit_bytes=128)
        for number, (service, latency) in enumerate(self.servers):
            builder.server(f"s{number}", service, latency)
        for number, slots in enumerate(self.pools):
            builder.pool(f"p{number}", slots)
        made: dict[tuple[int, int], range] = {}
        odd = rng.randrange(num_ranks)
        for rank in range(num_ranks):
            order = list(range(len(self.ops)))
            if perturbation == "order" and rank == odd:
                rng.shuffle(order)
            for number in order:
                stage, pool, setup, release, count = self.ops[number]
                flows = [replace(f, route=tuple((s, self.peer(rank, by)) for s, by in f.route)) for f in stage.flows]
                stages = [replace(stage, flows=tuple(flows))] if stage.flows or stage.hold_ticks else []
                release += perturbation == "release" and rank == odd and number == 0
                made[number, rank] = builder.op(
                    *(rank, OpKind.TILE, f"x{number}", stages),
                    **{"pool": pool, "setup_ticks": setup, "release_ticks": release, "count": count},
                )
        for waiter, source, offset in self.waits:
            for rank in range(num_ranks):
                by = -offset if perturbation == "pattern" and rank % 2 else offset
                builder.after(made[waiter, rank], made[source, self.peer(rank, by)])
        if perturbation == "wait":
            builder.after(made[len(self.ops) - 1, odd], made[0, rng.randrange(num_ranks)])
        return self._perturbed(builder.build(), odd, perturbation)

    def _perturbed(self, program: Program, odd: int, perturbation: str) -> Program:
        num_ranks = self.nodes * self.places
        first = {"server": odd, "latency": odd, "every other": slice(0, num_ranks, 2), "opposite": [0, num_ranks // 2]}
        service, latency, slots = program.service_ticks.copy(), program.latency_ticks.copy(), program.pool_slots.copy()
        if perturbation in first:
            (latency if perturbation == "latency" else service)[first[perturbation]] += 1
        if perturbation == "pool" and len(slots):
            slots[odd] += 1
        return replace(program, service_ticks=service, latency_ticks=latency, pool_slots=slots)


PERTURBATIONS = (
    *("none", "server", "latency", "every other", "opposite", "pool"),
    *("wait", "order", "release", "pattern"),
)


def random_spmd(seed: int) -> tuple[Spmd, random.Random]:
    """Times of a few ticks, so that everything meets at the same time; joins, idle servers and pools included."""
    rng = random.Random(seed)
    nodes, places = rng.choice(((1, 2), (1, 3), (1, 4), (2, 2), (1, 6), (2, 3), (1, 8), (4, 2)))
    servers = tuple((rng.randint(1, 4), rng.choice((0, 1, 2, 5, 20))) for _ in range(rng.randint(1, 4)))
    pools = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 2)))
    offsets = [0, 0, 0, 1, 2, -1, places, places + 1] + [100] * (rng.random() < 0.15)
    ops, waits = [], []
    for number in range(rng.randint(1, 5)):
        flows = []
        for _ in range(rng.choice((0, 1, 1, 2))):
            route = tuple((rng.randrange(len(servers)), rng.choice(offsets)) for _ in range(rng.randint(1, 4)))
            flows.append(Flow(route, rng.choice((0, 1, 3, 8)), rng.choice((0, 1, 2)), rng.choice((0, 0, 1))))
        pool = rng.randrange(len(pools)) if pools and rng.random() < 0.6 else None
        count = rng.choice((1, 1, 2, 3)) if flows else rng.choice((1, 9))
        ops.append((Stage(rng.choice((0, 1, 4)), tuple(flows)), pool, rng.choice((0, 1)), rng.choice((0, 0, 2)), count))
        for _ in range(rng.choice((0, 1, 2)) if number else 0):
            waits.append((number, rng.randrange(number), rng.choice(offsets[:-1])))
    if rng.random() < 0.05:
        waits.append((0, len(ops) - 1, 1))  # everybody waits for everybody
    return Spmd(nodes, places, servers, pools, tuple(ops), tuple(waits)), rng


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), perturbation=st.sampled_from(PERTURBATIONS))
def test_random_folds_are_exact(seed: int, perturbation: str) -> None:
    spmd, rng = random_spmd(seed)
    program = spmd.build(rng, perturbation)
    classes = detect(program)
    if isinstance(classes, Classes):
        assert_exact(program, quotient(program, classes))
    else:
        assert classes.reason


def test_random_folds_are_whole_partial_and_refused() -> None:
    whole, partial, refused, stuck = 0, 0, 0, 0
    for seed in range(300):
        spmd, rng = random_spmd(seed)
        program = spmd.build(rng, PERTURBATIONS[seed % len(PERTURBATIONS)])
        classes = detect(program)
        if isinstance(classes, Refusal):
            refused += 1
            continue
        folded = quotient(program, classes)
        assert_exact(program, folded)
        stuck += run(folded.program).outcome is Outcome.DEADLOCK
        whole += folded.num_rank_classes == 1
        partial += folded.num_rank_classes > 1
    print(f"\n{whole} folded to one rank, {partial} to several, {refused} refused, {stuck} deadlocks")
    assert min(whole, partial, refused, stuck) > 2


# Systems and shapes that fold in their own way.


def senders(next_rank: list[int], steps: int = 4) -> ProgramBuilder:
    """Every rank passes chunks on to the next, ``steps`` times; tiles wait for what arrives."""
    num_ranks = len(next_rank)
    builder = ProgramBuilder(num_ranks, folded=False, unit_bytes=128)
    hbm, link, engines, sms = builder.server("hbm", 2, 5), builder.server("link", 3, 20), 0, 1
    assert (builder.pool("dma", 2), builder.pool("sms", 3)) == (engines, sms)
    before = next_rank.index
    sent: list[list[int]] = []
    for step in range(steps):
        now: list[int] = []
        for rank in range(num_ranks):
            stage = Stage(0, (Flow(((hbm, rank), (link, rank), (hbm, next_rank[rank])), 9, 1),))
            now += builder.op(rank, OpKind.TRANSFER, f"send {step}", [stage], pool=engines)
            tiles = builder.op(rank, OpKind.TILE, "tile", [Stage(7, (Flow(((hbm, rank),), 3),))], pool=sms, count=9)
            builder.after(tiles, range(now[-1], now[-1] + 1))
            last = builder.op(rank, OpKind.TILE, "more", [Stage(2)], pool=sms, count=10)
            builder.after(last, tiles)  # 9 x 10 waits: the builder puts a join between
        for rank in range(num_ranks):
            if sent:
                builder.after([now[rank]], [sent[-1][before(rank)]])
        sent.append(now)
    return builder


def test_disjoint_rings_of_different_size_fold_to_one_rank() -> None:
    program = senders([1, 2, 0, 4, 5, 6, 7, 3]).build()

    folded = fold(program)

    assert (program.op_local_id == NONE).any()  # joins of the builder
    assert folded.num_rank_classes == 1
    assert folded.program.num_ops * 8 == program.num_ops
    assert set(folded.multiplicity.tolist()) == {8}
    assert_exact(program, folded)


def test_long_chains_of_ops_without_a_pool_settle_at_once() -> None:
    builder = ProgramBuilder(4, folded=False, unit_bytes=128)
    for rank in range(4):
        chain = builder.op(rank, OpKind.TILE, "x", [Stage(5)], count=40)
        for one, following in zip(chain[:-1], chain[1:], strict=True):
            builder.after([following], [one])
    program = builder.build()

    folded = fold(program)

    assert folded.program.num_ops == 40
    assert_exact(program, folded)


def test_a_port_shared_by_a_node_folds_over_nodes_only() -> None:
    builder = ProgramBuilder(8, folded=False, unit_bytes=128)
    hbm, nic, idle = builder.server("hbm", 2, 5), builder.server("nic", 3, 20), builder.server("idle", 1, 0)
    spare = builder.pool("spare", 4)
    for rank in range(8):
        flow = Flow(((hbm, rank), (nic, rank // 4 * 4), (hbm, rank + 4)), 12, 1)
        builder.op(rank, OpKind.TRANSFER, "send", [Stage(0, (flow,))])
    program = builder.build()

    folded = fold(program)

    assert folded.num_rank_classes == 4
    assert folded.program.num_servers == 4 + 1 + 2  # memories, the port, and one for all that is idle and alike
    assert len(folded.program.pool_slots) == 1 and (idle, spare) == (2, 0)
    assert_exact(program, folded)


def slowed(program: Program, name: str, rank: int) -> Program:
    service = program.service_ticks.copy()
    service[program.server_instance(program.server_names.index(name), rank)] += 3
    return replace(program, service_ticks=service)


@pytest.mark.parametrize("shape", ["mesh", "switch", "ring"])
def test_stragglers_leave_a_class_for_each_distance(shape: str) -> None:
    program = symmetric_program(3, shape, 8, folded=False)
    halves = slowed(slowed(slowed(slowed(program, "hbm", 0), "hbm", 2), "hbm", 4), "hbm", 6)

    assert fold(program).num_rank_classes == 1
    assert fold(halves).num_rank_classes == 2
    assert_exact(halves, fold(halves))
    one = detect(slowed(program, "hbm", 5))
    assert isinstance(one, Refusal) and "server hbm[5] is slower than hbm[0]" in one.reason


@pytest.mark.parametrize(
    ("perturb", "words"),
    [
        (lambda p: slowed(p, "up", 3), "no two ranks are alike: server up[3] is slower than up[0]"),
        (lambda p: slowed(p, "up", 0), "server up[0] is slower than up[1]"),
        (lambda p: replace(p, pool_slots=p.pool_slots - (np.arange(16) == 11)), "sms[3] has fewer slots than sms[0]"),
        (
            lambda p: replace(p, op_setup_ticks=p.op_setup_ticks + ((p.op_rank == 2) & (p.op_local_id == 0))),
            "op send of rank 2 takes another setup time than at rank 0",
        ),
        (
            lambda p: replace(p, flow_units=p.flow_units + (p.flow_first_hop == p.flow_first_hop.min())),
            "op send of rank 0 does other work than at rank 1",
        ),
    ],
)
def test_a_refusal_says_what_differs(perturb, words: str) -> None:  # type: ignore[no-untyped-def]
    classes = detect(perturb(symmetric_program(2, "switch", 8, folded=False)))

    assert isinstance(classes, Refusal)
    assert words in classes.reason


def test_refusals_name_waits_shared_servers_lone_ranks_and_the_limit() -> None:
    builder = senders([1, 2, 3, 0])
    builder.after([0], [builder.op(0, OpKind.LAUNCH, "late", setup_ticks=1)[0]])
    bus = ProgramBuilder(4, folded=False, unit_bytes=128)
    server = bus.server("bus", 1, 0)
    for rank in range(4):
        bus.op(rank, OpKind.TRANSFER, "send", [Stage(0, (Flow(((server, 0),), 4),))])
    extra = senders([1, 2, 3, 0])
    extra.after([2 * 20 + 1], [3 * 20 + 5])
    slow_ring = slowed(senders([*range(1, 12), 0], steps=6).build(), "link", 7)

    reasons = [detect(program) for program in (builder.build(), extra.build(), bus.build())]
    reasons.append(detect(slow_ring, max_rounds=2))

    texts = [reason.reason for reason in reasons if isinstance(reason, Refusal)]
    assert len(texts) == 4
    assert "rank 0 has 81 ops and rank 1 has 80" in texts[0]
    assert "op tile of rank 2 waits for other ops than at rank 0" in texts[1]
    assert "server bus[0] is shared: it serves op send of rank 0 and of rank 1" in texts[2]
    assert texts[3].startswith("what is alike is not settled after 2 rounds: server link[7] is slower than link[0]")
    assert detect(ProgramBuilder(1, folded=False, unit_bytes=128).build()) == Refusal("no op does any work")


def test_waiting_for_another_member_of_the_same_class_changes_nothing() -> None:
    builder = senders([1, 2, 3, 0])
    builder.after([2 * 20 + 1], [3 * 20])  # a tile of rank 2 waits for its own rank's chunk, and now for rank 3's too
    program = builder.build()

    assert fold(program).num_rank_classes == 1
    assert_exact(program, fold(program))


# Wrong folds.


def spoiled(program: Program, rng: random.Random) -> Program:
    """``program`` with one number changed, after its classes were found."""
    changed = program
    kind = rng.choice(
        ("service", "latency", "slots", "setup", "hold", "units", "gap", "server", "ties", "wait", "pool")
    )
    for name in {
        **{"service": ["service_ticks"], "latency": ["latency_ticks"], "slots": ["pool_slots"]},
        **{"setup": ["op_setup_ticks"], "hold": ["stage_hold_ticks"], "units": ["flow_units"]},
        **{"gap": ["flow_gap_ticks"]},
    }.get(kind, []):
        values = getattr(program, name).copy()
        if len(values):
            values[rng.randrange(len(values))] += 1
        changed = replace(program, **{name: values})
    if kind == "server" and program.num_hops:
        servers = program.hop_server.copy()
        servers[rng.randrange(len(servers))] = rng.randrange(program.num_servers)
        changed = replace(program, hop_server=servers)
    if kind == "pool" and len(program.pool_slots):
        pools = program.op_pool.copy()
        pools[rng.randrange(len(pools))] = rng.randrange(len(program.pool_slots))
        changed = replace(program, op_pool=pools)
    if kind == "wait" and len(program.op_next):
        following = program.op_next.copy()
        following[rng.randrange(len(following))] = rng.randrange(program.num_ops)
        waits = np.bincount(following, minlength=program.num_ops)
        changed = replace(program, op_next=following, op_num_waits=waits)
    return with_ties_swapped(program, rng) if kind == "ties" and program.num_hops else changed


def with_ties_swapped(program: Program, rng: random.Random) -> Program:
    """Two flow-hops change places in the order of ties."""
    new = np.arange(program.num_hops + 1)  # [hops and NONE, which is -1] new number by old; a swap is its own inverse
    new[-1] = NONE
    one, other = rng.randrange(program.num_hops), rng.randrange(program.num_hops)
    new[[one, other]] = other, one
    order = new[:-1]
    return replace(
        program,
        hop_server=program.hop_server[order],
        hop_flow=program.hop_flow[order],
        hop_index=program.hop_index[order],
        hop_next=new[program.hop_next[order]],
        flow_first_hop=new[program.flow_first_hop],
    )


def confused(classes: Classes, rng: random.Random) -> Classes:
    """Two classes made one, or one member moved to another class."""
    name = rng.choice(("server", "pool", "op", "op"))
    numbers = getattr(classes, name).copy()
    if len(numbers):
        chosen, other = rng.randrange(len(numbers)), rng.choice(numbers.tolist())
        numbers[numbers == numbers[chosen] if rng.random() < 0.5 else chosen] = other
    return replace(classes, **{name: numbers})


def test_wrong_partitions_are_refused_or_exact() -> None:
    refused: dict[Condition, int] = dict.fromkeys(Condition, 0)
    exact = 0
    for seed in range(400):
        rng = random.Random(seed)
        spmd, _ = random_spmd(rng.randrange(1000))
        program = spmd.build(rng, rng.choice(("none", "none", "every other", "opposite")))
        classes = detect(program)
        if isinstance(classes, Refusal):
            continue
        if rng.random() < 0.5:
            program = spoiled(program, rng)
        else:
            classes = confused(classes, rng)
        try:
            folded = quotient(program, classes)
        except FoldError as error:
            refused[error.condition] += 1
            assert all(member in str(error) for member in error.members)
        else:
            exact += 1
            assert same(expand(folded, run(folded.program)), run(program))
    print("\n", exact, "exact;", {condition.name: count for condition, count in refused.items()})
    assert min(refused.values()) > 2
    assert sum(refused.values()) > 2 * exact > 0


def test_partitions_of_another_program_are_refused() -> None:
    program = senders([1, 2, 3, 0]).build()
    classes = detect(senders([1, 2, 0]).build())
    assert isinstance(classes, Classes)

    with pytest.raises(ValueError, match="a partition of"):
        quotient(program, classes)


@pytest.mark.parametrize(("shape", "slow"), [("mesh", "link+1"), ("switch", "down"), ("ring", "up")])
def test_folding_a_straggler_all_the_same_would_be_wrong(shape: str, slow: str) -> None:
    wrong = 0
    for seed in range(8):
        forced = run(symmetric_program(seed, shape, 4, folded=True))  # as if the slow server were not there
        program = slowed(symmetric_program(seed, shape, 4, folded=False), slow, 1)
        classes = detect(program)
        whole = run(program)
        if isinstance(classes, Classes):
            assert same(expand(quotient(program, classes), run(quotient(program, classes).program)), whole)
        wrong += forced.makespan_ticks != whole.makespan_ticks
    assert wrong > 4


def test_a_run_that_was_stopped_expands_to_what_it_found() -> None:
    program = symmetric_program(1, "mesh", 8, folded=False)
    folded = fold(program)

    stopped = expand(folded, run(folded.program, should_stop=lambda: True))
    refused = expand(folded, run(folded.program, max_line_hops=1))

    assert (stopped.outcome, refused.outcome) == (Outcome.CANCELLED, Outcome.LIMIT)
    for found in (stopped, refused):
        assert len(found.op_done) == program.num_ops and len(found.server_free) == program.num_servers
        assert found.line_hops == 0 and set(found.op_done.tolist()) == {NEVER}


def test_many_ranks_fold_in_little_time() -> None:
    program = senders([*range(1, 256), 0], steps=8).build()
    started = time.perf_counter()
    classes = detect(program)
    found = time.perf_counter()
    assert isinstance(classes, Classes)
    folded = quotient(program, classes)
    done = time.perf_counter()
    print(
        f"\n256 ranks, {program.num_ops} ops, {program.num_hops} flow-hops: "
        f"classes {found - started:.2f} s, quotient {done - found:.2f} s"
    )
    assert folded.num_rank_classes == 1
    assert folded.program.num_ops * 256 == program.num_ops
