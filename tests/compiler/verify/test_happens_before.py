"""What surely happens before what is the same whether one rank stands for all or every rank is looked at.

A plan whose kernels and copies keep apart lends its copying SMs to kernels; one that only says so is refused.
"""

from dataclasses import replace

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import EngineChoice, EngineKind, EngineMode, OpChoice, OpPlan
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.verify.check import check_plan
from magus.compiler.verify.happens_before import HappensBefore, Waits
from tests.helpers.plans.plans import BODIES, all_schedules, scenario_of
from tests.helpers.some import some

TEXT = """use "nvidia/h100"
system s { gpus 5 x H100; fabric ring(nvlink) }
workload w on s { x = tensor bf16[160, 64]; y = all_reduce(x) }
"""
SCENARIO = compile_text(TEXT).scenario().case


def ring(chunks: int = 10, engine: EngineChoice | None = None) -> OpPlan:
    return build_op_plan(SCENARIO, OpChoice("ring", chunks, engine or default_engine(SCENARIO.system)))


def apart(schedule: OpPlan) -> OpPlan:
    """The same with the steps of each rank written out."""
    return replace(schedule, by_rank=(schedule.steps,) * SCENARIO.num_ranks)


def test_one_rank_stands_for_all() -> None:
    folded, every = (HappensBefore(Waits(SCENARIO, schedule)) for schedule in (ring(), apart(ring())))
    names = [step.name for step in ring().steps]

    for then in names:
        for first in names:
            for rank in range(SCENARIO.num_ranks):
                one, other = (rank, first), (3, then)
                assert folded.happened(one, other) == every.happened(one, other)
    assert check_plan(SCENARIO, ring()) == check_plan(SCENARIO, apart(ring())) == ()


def test_what_the_issuer_of_an_arrived_transfer_did_is_done() -> None:
    schedule = ring(5, EngineChoice(EngineKind.SM, 8))
    order = HappensBefore(Waits(SCENARIO, schedule))
    first, *_, last = [step.name for step in schedule.steps]

    # Step 7 of rank 0 waits for step 6 of the rank before, and so on: for step 0 of the rank seven before.
    assert [order.happened((rank, first), (0, last)) for rank in range(5)] == [False, False, False, True, False]
    assert not order.happened((0, last), (3, first))


def test_a_cycle_through_all_ranks() -> None:
    first, *others = ring(5).steps
    waiting = replace(first, after=(others[-1].signal,))  # type: ignore[union-attr]
    schedule = replace(ring(5), steps=(waiting, *others))

    for each in (schedule, apart(schedule)):
        assert first.name in Waits(SCENARIO, each).cycle()
        assert check_plan(SCENARIO, each)[0].code.name == "MGS503"
    assert Waits(SCENARIO, ring(5)).cycle() == ()


@pytest.mark.parametrize("name", [step.name for step in ring(5).steps])
def test_faults_are_found_either_way(name: str) -> None:
    schedule = ring(5)
    less = replace(schedule, steps=tuple(step for step in schedule.steps if step.name != name))

    found, all_ranks = (check_plan(SCENARIO, each) for each in (less, apart(less)))

    assert found and {fault.code for fault in found} == {fault.code for fault in all_ranks}


@pytest.mark.parametrize("body", BODIES)
def test_of_the_templates_those_that_do_not_overlap_keep_apart(body: str) -> None:
    scenario = scenario_of(body)
    for schedule in some(all_schedules(body)):
        all_sms = replace(schedule, compute_sms=scenario.gpu.sms)

        faults = {fault.code for fault in check_plan(scenario, all_sms)}

        if schedule.compute_sms == scenario.gpu.sms:
            assert not faults
        else:
            assert faults <= {Code.MGS513}


def test_what_overlaps_is_refused_where_its_sms_are_its_own() -> None:
    scenario = scenario_of("AG+GEMM")
    found = [
        replace(schedule, compute_sms=scenario.gpu.sms)
        for schedule in all_schedules("AG+GEMM")
        if schedule.engine.kind is EngineKind.SM and schedule.expression.startswith("uniform")
    ]

    assert found
    for schedule in found:
        assert {fault.code for fault in check_plan(scenario, schedule)} == {Code.MGS513}
        shared = replace(schedule, engine=replace(schedule.engine, mode=EngineMode.SHARED))
        assert not check_plan(scenario, shared)
