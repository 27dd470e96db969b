"""Stages of the advice that are asked to stop do so, whatever they are in the middle of."""

import pytest

from magus.advisor.bounds.lower_bound import lower_bound
from magus.advisor.candidates.predicted import predicted_us
from magus.advisor.solver import enumerate_space
from magus.advisor.solver.enumerate import explain
from magus.compiler.ir import Cancelled, EngineChoice, EngineKind, OpChoice, heeding
from magus.compiler.planning.build import build_op_plan
from tests.helpers.scenarios.fabrics import torus
from tests.helpers.scenarios.scenarios import ag_gemm

SCENARIO = ag_gemm(4096, 4096, 4096, ranks=9, fabric=torus(3, 3))
CHOICE = OpChoice("serial", 9, EngineChoice(EngineKind.DMA, 4))


def test_the_bound() -> None:
    with pytest.raises(Cancelled):
        lower_bound(SCENARIO, should_stop=lambda: True)


def test_the_estimate() -> None:
    schedules = [build_op_plan(SCENARIO, CHOICE)]
    with pytest.raises(Cancelled), heeding(lambda: True):
        predicted_us(SCENARIO, [CHOICE], schedules)


def test_the_solver_in_its_thread() -> None:
    with pytest.raises(Cancelled), heeding(lambda: True):
        explain(SCENARIO)


@pytest.mark.parametrize(("generated", "heard"), [(False, 0), (True, 3)])
def test_the_counts_of_what_dominance_leaves_out(generated: bool, heard: int) -> None:
    """What a stop comes before is not counted again from the beginning.

    How often the solver, in its thread, is asked before it ends depends on the machine: it is stopped at once.
    """
    requested: list[int] = []

    def stopped() -> bool:
        requested.append(1)
        return len(requested) > heard

    space = enumerate_space(SCENARIO, generated=generated, should_stop=stopped)

    assert not space.complete
    assert space.assumed == ()
