"""Folding what is alike: the times of every op, flow and server come out as without it, or it says why it cannot."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import EngineChoice, EngineKind, Fabric, OpCase, OpChoice, Override, Transfer
from magus.compiler.planning.build import build_op_plan
from magus.simcore.cores.engine import run
from magus.simcore.fold.refine import Classes, Refusal, by_local_id, detect
from magus.simcore.fold.run import FoldError, expand, quotient
from magus.simcore.program.arrays import NONE
from magus.simcore.program.builder import ProgramBuilder
from magus.simcore.program.program import NEVER, Flow, OpKind, OpSpec, RunOutcome, Stage
from tests.helpers.marks import examples, first, thinned
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.spmd_programs import PERTURBATIONS, assert_exact, fold, random_spmd, same, senders, slowed
from tests.helpers.oracle.strategies import symmetric_program
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, gemm_rs, ring, switch
from tests.helpers.work import calls_of


# Each fifth has every number of ranks, every fabric and both patterns.
@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "system", thinned(itertools.product((2, 4, 8), (full_mesh(), ring(), switch()), (ag_gemm, gemm_rs)), 5)
)
def test_lowered_plans_fold_to_one_rank(system: tuple[int, Fabric, Callable[..., OpCase]]) -> None:
    ranks, fabric, make = system
    scenario = make(256, 512, 512, ranks=ranks, fabric=fabric)
    dma, sm = EngineChoice(EngineKind.DMA, max(1, ranks - 1)), EngineChoice(EngineKind.SM, 8)
    for choice in (
        *(
            OpChoice("serial", ranks, dma),
            OpChoice("shard_p2p", ranks, dma),
            OpChoice("hetero_fused_1d", 2 * ranks, sm),
        ),
        *(OpChoice("uniform_fused_2d", 4 * ranks, dma), OpChoice("hetero_unfused_1d", 2 * ranks, dma, 4)),
    ):
        schedule = build_op_plan(scenario, choice)
        program = lower_op(scenario, schedule, unit_bytes=8192, fold=False).program
        described = lower_op(scenario, schedule, unit_bytes=8192).program  # one rank, folded by the lowering

        folded = fold(program)

        assert folded.num_rank_classes == 1
        assert folded.program.num_flows == described.num_flows
        assert folded.program.num_line_hops * ranks == folded.whole.num_line_hops == program.num_line_hops
        assert same(expand(folded, run(folded.program)), run(program))
        assert set(np.bincount(folded.class_of_op)[folded.program.op_kind == OpKind.TRANSFER].tolist()) == {ranks}
    assert_exact(program, folded)  # the oracle is slow: the last of them only


def test_overrides_that_change_nothing_or_little_fold_as_far_as_they_go() -> None:
    scenario = ag_gemm(256, 512, 512, ranks=8)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 16, EngineChoice(EngineKind.DMA, 2)))
    first, second, *_ = (step for step in schedule.steps if isinstance(step, Transfer))
    late = replace(second, after=(*second.after, first.name))
    classes = []
    for steps in ([(5, second)], [(rank, late) for rank in range(0, 8, 2)], [(rank, late) for rank in range(8)]):
        overridden = replace(schedule, overrides=tuple(Override(rank, step) for rank, step in steps))
        lowered = lower_op(scenario, overridden, unit_bytes=8192)  # the lowering itself folds no plan with overrides
        folded = fold(lowered.program)
        assert not lowered.program.folded and same(expand(folded, run(folded.program)), run(lowered.program))
        classes.append(folded.num_rank_classes)

    assert classes == [1, 2, 1]


@examples(75, deep=1500)
@given(seed=st.integers(0, 2**32), perturbation=st.sampled_from(PERTURBATIONS))
def test_random_folds_are_exact(seed: int, perturbation: str) -> None:
    spmd, rng = random_spmd(seed)
    program = spmd.build(rng, perturbation)
    classes = detect(program)
    if isinstance(classes, Classes):
        assert_exact(program, quotient(program, classes))
    else:
        assert classes.reason


def test_the_guess_that_ranks_are_alike_op_by_op_is_right_or_found_wrong() -> None:
    right = wrong = 0
    for seed in range(60):
        spmd, rng = random_spmd(seed)
        program = spmd.build(rng, PERTURBATIONS[seed % len(PERTURBATIONS)])
        guess = by_local_id(program)
        if guess is None:
            continue
        try:
            folded = quotient(program, guess)
        except FoldError:
            wrong += 1
        else:
            right += 1
            assert_exact(program, folded)
            assert folded.num_rank_classes == 1
    assert min(right, wrong) > 2


@pytest.mark.slow
@pytest.mark.parametrize("count", first([60, 300], 1))
def test_random_folds_are_whole_partial_and_refused(count: int) -> None:
    whole, partial, refused, stuck = 0, 0, 0, 0
    for seed in range(count):
        spmd, rng = random_spmd(seed)
        program = spmd.build(rng, PERTURBATIONS[seed % len(PERTURBATIONS)])
        classes = detect(program)
        if isinstance(classes, Refusal):
            refused += 1
            continue
        folded = quotient(program, classes)
        assert_exact(program, folded)
        stuck += run(folded.program).outcome is RunOutcome.DEADLOCK
        whole += folded.num_rank_classes == 1
        partial += folded.num_rank_classes > 1
    print(f"\n{whole} folded to one rank, {partial} to several, {refused} refused, {stuck} deadlocks")
    assert min(whole, partial, refused, stuck) > 2


def test_disjoint_rings_of_different_size_fold_to_one_rank() -> None:
    program = senders([1, 2, 0, 4, 5, 6, 7, 3]).build()

    folded = fold(program)

    assert (program.op_local_id == NONE).any()  # joins of the builder
    assert folded.num_rank_classes == 1
    assert folded.program.num_ops * 8 == program.num_ops
    assert set(np.bincount(folded.class_of_op).tolist()) == {8}
    assert_exact(program, folded)


def test_long_chains_of_ops_without_a_pool_settle_at_once() -> None:
    builder = ProgramBuilder(4, unit_bytes=128)
    for rank in range(4):
        chain = builder.op(rank, OpSpec(OpKind.TILE, "x", [Stage(5)]), count=40)
        for one, following in itertools.pairwise(chain):
            builder.after([following], [one])
    program = builder.build()

    folded = fold(program)

    assert folded.program.num_ops == 40
    assert_exact(program, folded)


def test_a_port_shared_by_a_node_folds_over_nodes_only() -> None:
    builder = ProgramBuilder(8, unit_bytes=128)
    hbm, nic, idle = builder.server("hbm", 2, 5), builder.server("nic", 3, 20), builder.server("idle", 1, 0)
    spare = builder.pool("spare", 4)
    for rank in range(8):
        flow = Flow(((hbm, rank), (nic, rank // 4 * 4), (hbm, rank + 4)), 12, 1)
        builder.op(rank, OpSpec(OpKind.TRANSFER, "send", [Stage(0, (flow,))]))
    program = builder.build()

    folded = fold(program)

    assert folded.num_rank_classes == 4
    assert folded.program.num_servers == 4 + 1 + 2  # memories, the port, and one for all that is idle and alike
    assert len(folded.program.pool_slots) == 1 and (idle, spare) == (2, 0)
    assert_exact(program, folded)


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
    builder.after([0], [builder.op(0, OpSpec(OpKind.LAUNCH, "late", setup_ticks=1))[0]])
    bus = ProgramBuilder(4, unit_bytes=128)
    server = bus.server("bus", 1, 0)
    for rank in range(4):
        bus.op(rank, OpSpec(OpKind.TRANSFER, "send", [Stage(0, (Flow(((server, 0),), 4),))]))
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
    assert detect(ProgramBuilder(1, unit_bytes=128).build()) == Refusal("no op does any work")


def test_ranks_that_pass_other_amounts_are_told_apart_before_ops_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of ranks, each behind another number: the ends pass on as much, and have other neighbours."""
    builder = ProgramBuilder(4, unit_bytes=128)
    server = builder.server("link", 3, 20)
    for rank, units in enumerate((5, 7, 9)):
        stage = Stage(0, (Flow(((server, rank), (server, rank + 1)), units),))
        builder.op(rank, OpSpec(OpKind.TRANSFER, "send", [stage]))
    monkeypatch.setattr("magus.simcore.fold.refine._Refinement", None)
    found = detect(builder.build())
    assert isinstance(found, Refusal) and found.reason.startswith("no two ranks are alike: rank 3 has 0 ops")


def test_waiting_for_another_member_of_the_same_class_changes_nothing() -> None:
    builder = senders([1, 2, 3, 0])
    builder.after([2 * 20 + 1], [3 * 20])  # a tile of rank 2 waits for its own rank's chunk, and now for rank 3's too
    program = builder.build()

    assert fold(program).num_rank_classes == 1
    assert_exact(program, fold(program))


def test_a_run_that_was_stopped_expands_to_what_it_found() -> None:
    program = symmetric_program(1, "mesh", 8, folded=False)
    folded = fold(program)

    stopped = expand(folded, run(folded.program, should_stop=lambda: True))

    assert stopped.outcome is RunOutcome.CANCELLED
    assert len(stopped.op_done) == program.num_ops and len(stopped.server_free) == program.num_servers
    assert stopped.line_hops == 0 and set(stopped.op_done.tolist()) == {NEVER}


@pytest.mark.slow
def test_many_ranks_fold_with_no_more_calls_than_few() -> None:
    program = senders([*range(1, 256), 0], steps=8).build()
    classes = detect(program)
    assert isinstance(classes, Classes)
    folded = quotient(program, classes)
    assert calls_of(lambda: detect(program)) < 3000 < program.num_ops
    assert folded.num_rank_classes == 1
    assert folded.program.num_ops * 256 == program.num_ops
