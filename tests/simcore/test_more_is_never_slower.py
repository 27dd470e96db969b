"""More cache, bandwidth or SMs and less latency make no run slower; where they do, ops have changed places in a queue.

Pools and servers serve what comes first. If something ends sooner, another op may get the slot that the critical one
would have had, as in Graham's anomalies of list scheduling (SIAM J. Appl. Math. 17, 1969). No rule of a cache or a link
mends that, so it is counted: how many comparisons differ by more than the tolerance, and by how much.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

from magus.compiler.ir import OpCase, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore.fold.run import RunOptions, run_folded
from magus.simcore.program.program import PACKET_BYTES
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.scenarios.better import BETTER
from tests.helpers.scenarios.drawn import SYSTEMS, TEXTS, draw_choices, scenario_of
from tests.helpers.some import some

TOLERANCE = 0.005
PATTERNS = tuple(pattern for pattern in TEXTS if pattern not in (Pattern.GEMM, Pattern.KERNEL))


class Comparison(NamedTuple):
    """By how much a run is slower where one thing is ``better`` by a factor."""

    slower: float
    better: str
    factor: float
    what: str


def draw(rng: random.Random, pattern: Pattern) -> OpCase:
    """A scenario whose cache holds a part of what is moved."""
    ranks = rng.choice((2, 4, 8))
    sizes = (ranks * 64 * rng.choice((1, 2, 4)) for _ in range(3))
    scenario = scenario_of(pattern, rng.choice(SYSTEMS if ranks > 2 else SYSTEMS[:3]), ranks, *sizes)
    gpu, moved = scenario.gpu, scenario.shape.moved
    assert moved is not None
    size = int(moved.num_bytes * rng.choice((0.3, 0.5, 0.7, 0.9, 1.2))) + 128
    if gpu.mall is not None:
        gpu = replace(gpu, mall=replace(gpu.mall, size_bytes=size))
    else:
        gpu = replace(gpu, l2=replace(gpu.l2, size_bytes=size))
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


@cache
def compared(first: int, count: int) -> tuple[Comparison, ...]:
    """Schedules of drawn scenarios on their own and on better hardware."""
    return tuple(each for seed in range(first, first + count) for each in _compared(seed))


def _compared(seed: int) -> Iterator[Comparison]:
    rng = random.Random(f"better {seed}")
    scenario = draw(rng, PATTERNS[seed % len(PATTERNS)])
    for choice in draw_choices(rng, scenario, 1):
        before = _ticks(scenario, choice)
        for name, change in BETTER.items():
            factor = rng.choice((1.03, 1.1, 1.3, 1.6, 2, 4))
            after = _ticks(change(scenario, factor), choice)
            yield Comparison(after / before - 1, name, factor, f"{scenario.system.fabric.topology.name} {choice}")


def _ticks(scenario: OpCase, choice: OpChoice) -> int:
    schedule = build_op_plan(scenario, choice)
    return run_folded(lower_op(scenario, schedule, unit_bytes=PACKET_BYTES).program, RunOptions()).run.makespan_ticks


@pytest.mark.usefixtures("compiled_core")
def test_better_hardware_makes_no_run_slower() -> None:
    found = some(compared(0, len(PATTERNS)))

    assert [each for each in found if each.slower > TOLERANCE] == []


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_core")
def test_better_hardware_makes_few_runs_slower_by_little() -> None:
    """Kernels take more SMs where there are more, and may leave none to what runs beside them: these have no limit."""
    found = compared(28, 400)
    slower = [each for each in found if each.slower > TOLERANCE]

    assert len(slower) <= 0.01 * len(found), slower
    assert not [each for each in slower if each.better == "cache"]
    assert all(each.slower < 0.05 for each in slower if each.better != "sms"), slower
