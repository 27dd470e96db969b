"""Templates whose steps are the same for every engine, and the plans that choices share."""

from dataclasses import replace

import pytest

from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from magus.compiler.planning.build import build_op_plan, build_schedules
from magus.compiler.planning.staging import template_input
from magus.compiler.templates import ALL_TEMPLATES, Template
from tests.compiler.templates.test_templates import scenarios_of
from tests.helpers.some import some

DMA, SM = EngineChoice(EngineKind.DMA, 7), EngineChoice(EngineKind.SM, 16)
ANY_ENGINE = [template for template in ALL_TEMPLATES if template.any_engine]


@pytest.mark.parametrize("template", ANY_ENGINE, ids=lambda template: template.name)
def test_steps_do_not_depend_on_the_engine(template: Template) -> None:
    for pattern in some(template.patterns):
        for scenario in some(scenarios_of(pattern)):
            choice = OpChoice(template.name, 2 * scenario.num_ranks, DMA)
            by_dma, by_sm = (template_input(scenario, replace(choice, engine=engine)) for engine in (DMA, SM))

            assert template.write(by_dma) == template.write(by_sm)


def test_choices_that_differ_in_their_engine_share_their_steps() -> None:
    scenario = scenarios_of(ANY_ENGINE[0].patterns[0])[0]
    n = scenario.num_ranks
    choices = [OpChoice(name, n, engine) for name in ("serial", "shard_p2p") for engine in (DMA, SM)]

    schedules = list(build_schedules(scenario, choices))

    assert schedules == [build_op_plan(scenario, choice) for choice in choices]
    assert schedules[2].steps is schedules[3].steps
    assert schedules[2].engine != schedules[3].engine
