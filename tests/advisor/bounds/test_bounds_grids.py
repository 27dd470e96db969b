"""No plan whose kernels are cut by rows, columns and slices of the inner dimension beats the bound."""

import math
import random

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.compiler import compile_text
from magus.compiler.ir import OpCase, Pattern
from magus.simcore import simulate_op
from magus.simcore.program.program import RunOutcome
from tests.helpers.marks import first
from tests.helpers.scenarios.drawn import TEXTS
from tests.helpers.scenarios.drawn_grids import draw_grid_plan

SYSTEMS = (
    ("nvidia/h100", "H100; fabric switch(nvswitch, link=nvlink)"),
    ("nvidia/b200", "B200; fabric switch(nvswitch, link=nvlink)"),
    ("nvidia/h100", "H100; fabric ring(nvlink)"),
    ("amd/mi300x", "MI300X; fabric full_mesh(xgmi)"),
    ("amd/mi355x", "MI355X; fabric full_mesh(xgmi)"),
)


def draw(rng: random.Random) -> OpCase:
    """AG+GEMM or GEMM+RS of some hundred to some thousand rows, columns and inner elements."""
    pattern, ranks = rng.choice((Pattern.AG_GEMM, Pattern.GEMM_RS)), rng.choice((2, 4, 8))
    library, system = rng.choice(SYSTEMS)
    m, n, k = (ranks * 64 * max(1, round(math.exp(rng.uniform(0, math.log(most))))) for most in (24, 12, 16))
    text = TEXTS[pattern].format(m=m, n=n, k=k)
    return (
        compile_text(f'use "{library}"\nsystem s {{ gpus {ranks} x {system} }}\nworkload one on s {{ {text} }}\n')
        .scenario()
        .case
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", first(range(40), 4))
def test_no_grid_beats_the_bound(seed: int) -> None:
    rng = random.Random(f"grid {seed}")
    scenario, done = draw(rng), 0
    for _ in range(4):
        schedule = draw_grid_plan(rng, scenario)
        result = schedule and simulate_op(scenario, schedule, unit_bytes=rng.choice((512, 4096, 16384)))
        # Persistent kernels in several streams may hold all SMs that copies need.
        if schedule and result and result.outcome is RunOutcome.DONE:
            done += 1
            assert result.makespan_ticks >= lower_bound(scenario, (schedule.engine.kind,)).ticks
    assert done
