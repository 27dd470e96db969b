"""Wrong folds: the check refuses what would change times, and the comparison would notice if it did not."""

import random
from dataclasses import replace

import numpy as np
import pytest

from magus.simcore.cores.engine import run
from magus.simcore.fold.refine import Classes, Refusal, detect
from magus.simcore.fold.run import expand, quotient
from magus.simcore.fold.verify import Condition, FoldError
from magus.simcore.program.arrays import NONE
from magus.simcore.program.program import Program
from tests.helpers.oracle.spmd_programs import random_spmd, same, senders, slowed
from tests.helpers.oracle.strategies import symmetric_program


def spoiled(program: Program, rng: random.Random) -> Program:
    """``program`` with one number changed, after its classes were found."""
    changed = program
    kind = rng.choice(
        ("service", "latency", "slots", "setup", "hold", "units", "gap", "server", "ties", "wait", "pool")
    )
    columns = {"slots": "pool_slots", "setup": "op_setup_ticks", "hold": "stage_hold_ticks", "units": "flow_units"}
    columns |= {"service": "service_ticks", "latency": "latency_ticks", "gap": "flow_gap_ticks"}
    if kind in columns:
        name = columns[kind]
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
        hop_buffer=program.hop_buffer[order],
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


@pytest.mark.slow
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
    assert sum(refused.values()) > exact > 0


def test_partitions_of_another_program_are_refused() -> None:
    program = senders([1, 2, 3, 0]).build()
    classes = detect(senders([1, 2, 0]).build())
    assert isinstance(classes, Classes)

    with pytest.raises(ValueError, match="a partition of"):
        quotient(program, classes)


@pytest.mark.quick(1)
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
