"""Collectives by every algorithm on every fabric: the simulator equals the oracle, and one rank stands for all."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.simcore.cores.engine import Core, run
from magus.simcore.program.arrays import NONE
from magus.simcore.program.program import Program, RunOutcome
from tests.helpers.marks import first
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.collective_programs import (
    Algorithm,
    Collective,
    Fabric,
    System,
    collective,
    hierarchical_all_reduce,
    symmetric,
)
from tests.helpers.oracle.oracle import Oracle, OracleRun
from tests.helpers.oracle.spmd_programs import assert_exact, fold

SHAPES = ((1, 4), (3, 1), (2, 3), (1, 5))  # nodes, places
SETTINGS = (
    System(),
    System(window_units=2, poll_ticks=7),
    System(buffer_units=1, credit_ticks=3),
    System(window_units=3, buffer_units=2, poll_ticks=11, engines=4),
)
EVERY_PAIR = list(itertools.product(Collective, Algorithm))


def systems() -> Iterator[System]:
    for fabric, (nodes, places), setting in itertools.product(Fabric, SHAPES, SETTINGS):
        yield replace(setting, nodes=nodes, places=places, fabric=fabric)


def by_rank(program: Program, times: list[int], rank: int) -> list[tuple[int, int]]:
    """(local id, time) of a rank's own ops."""
    ops = zip(program.op_rank.tolist(), program.op_local_id.tolist(), times, strict=True)
    return sorted((local_id, time) for of, local_id, time in ops if of == rank and local_id != NONE)


def assert_one_stands_for_all(whole: Program, expected: OracleRun, folded: Program) -> None:
    result = run(folded)
    for found, times in ((result.op_ready, expected.ready), (result.op_done, expected.done)):
        one = by_rank(folded, found.tolist(), 0)
        assert all(by_rank(whole, times, rank) == one for rank in range(whole.num_ranks))


@pytest.mark.quick(8)
@pytest.mark.parametrize("every", first((5, 1), 1))
@pytest.mark.parametrize(("kind", "algorithm"), EVERY_PAIR)
def test_collectives_equal_the_oracle_and_fold(kind: Collective, algorithm: Algorithm, every: int) -> None:
    finished = 0
    for number, system in enumerate(itertools.islice(systems(), 0, None, every)):
        units = 3 * system.num_ranks
        program = collective(kind, algorithm, system, units)
        expected = Oracle(program).run()
        for core in Core if number % 7 == 0 else (Core.COMPILED,):  # with each setting and each shape
            assert differences(program, run(program, core=core), expected) == [], (core, system)
        finished += not expected.deadlock
        if symmetric(kind, algorithm, system):
            assert_one_stands_for_all(program, expected, collective(kind, algorithm, system, units, folded=True))
    assert finished >= number - 4  # with little room, detours around a ring of links may end in a real deadlock


@pytest.mark.parametrize(("kind", "algorithm"), [pair for pair in EVERY_PAIR if pair[0] is not Collective.BROADCAST])
def test_alike_ranks_of_collectives_are_found(kind: Collective, algorithm: Algorithm) -> None:
    for nodes, places in ((2, 3), (1, 4)):
        system = System(nodes, places, Fabric.SWITCH)
        program = collective(kind, algorithm, system, 3 * system.num_ranks)
        folded = fold(program)
        assert folded.num_rank_classes == (1 if symmetric(kind, algorithm, system) else places)
        assert_exact(program, folded)


def test_a_ring_of_full_buffers_is_a_deadlock() -> None:
    system = System(1, 6, Fabric.RING, buffer_units=1, engines=4)
    program = collective(Collective.ALL_TO_ALL, Algorithm.DIRECT, system, 60)

    assert run(program).outcome is RunOutcome.DEADLOCK
    assert Oracle(program).run().deadlock
    assert run(collective(Collective.ALL_TO_ALL, Algorithm.RING, system, 60)).outcome is RunOutcome.DONE


def test_a_hierarchy_of_thousands_is_described_by_one_rank() -> None:
    program = hierarchical_all_reduce(512, 8, 4096, folded=True)
    whole = hierarchical_all_reduce(3, 2, 100, folded=False)

    assert run(program).outcome is RunOutcome.DONE
    assert program.num_ops == 2 * 7 + 2 * 511 + (program.op_local_id == NONE).sum()
    assert_one_stands_for_all(whole, Oracle(whole).run(), hierarchical_all_reduce(3, 2, 100, folded=True))
