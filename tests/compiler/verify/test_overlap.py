"""A plan whose kernels and copies keep apart lends its copying SMs to kernels; one that only says so is refused."""

from dataclasses import replace

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import EngineKind, EngineMode
from magus.compiler.verify.check import check_plan
from tests.helpers.plans.plans import BODIES, all_schedules, scenario_of
from tests.helpers.some import some


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
