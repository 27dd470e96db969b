"""The plan of each template, written out for a tiny case of each pattern; MAGUS_UPDATE_GOLDEN=1 writes them anew."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, Pattern
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES, Template
from magus.compiler.templates.collective import collective_in
from tests.helpers import paths
from tests.helpers.scenarios.drawn import scenario_of

GOLDEN, UPDATE = paths.GOLDEN / "plans", "MAGUS_UPDATE_GOLDEN"
SWITCH = "gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink)"
NODES = "gpus {ranks} x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=nvlink)"
# As few ranks as show that they are counted round, and more where a template needs them.
WHERE = ((SWITCH, 3), (SWITCH, 4), (NODES, 4))
ENGINES = (EngineChoice(EngineKind.DMA, 2), EngineChoice(EngineKind.SM, 4))
IN_NODES = {"pipelined": (Pattern.GEMM_RS, "hierarchical"), "double_ring": (Pattern.ALL_GATHER, "")}


def scenario_on(system: str, ranks: int, pattern: Pattern) -> OpCase:
    """Four rows a shard, and columns that two pieces may cut; the switch copies and sums."""
    count = 1 if collective_in(pattern) is None else ranks
    made = scenario_of(pattern, system, count, 4 * count, 128 * count, 128 * count)
    fabric = made.system.fabric
    assert fabric.switch is not None
    able = replace(fabric, switch=replace(fabric.switch, multicast=True, reduces=True))
    return replace(made, system=replace(made.system, fabric=able))


def choice_of(template: Template, scenario: OpCase, engine: EngineChoice, algorithm: str = "") -> OpChoice:
    pieces = 2 if template.cuts_shards else 1
    return OpChoice(template.name, scenario.num_ranks * pieces, engine, template.default_streams, algorithm=algorithm)


def cases(template: Template) -> Iterator[tuple[OpCase, OpChoice]]:
    """The first place where the template works, for each of its patterns; and one case in nodes."""
    for pattern in template.patterns:
        for (system, ranks), engine in product(WHERE, ENGINES):
            scenario = scenario_on(system, ranks, pattern)
            choice = choice_of(template, scenario, engine)
            if reject_choice(scenario, choice) is None:
                yield scenario, choice
                break
        else:
            raise AssertionError(f"{template.name} schedules no {pattern.value}")
    if template.name in IN_NODES:
        pattern, algorithm = IN_NODES[template.name]
        scenario = scenario_on(NODES, 4, pattern)
        yield scenario, choice_of(template, scenario, ENGINES[0], algorithm)


def written(template: Template) -> str:
    texts = []
    for scenario, choice in cases(template):
        head = f"# {scenario.shape.label} on {scenario.num_ranks} ranks: "
        schedule = build_op_plan(scenario, choice)
        texts.append(f"{head}{schedule.expression}\n{plan_text(scenario, schedule, template.name)}")
    return "\n".join(texts)


def looked_at(template: Template) -> bool:
    """Whether there is a plan of it, or is to be."""
    return UPDATE in os.environ or (GOLDEN / f"{template.name}.txt").exists()


@pytest.mark.parametrize(
    "template", [each for each in ALL_TEMPLATES if looked_at(each)], ids=lambda template: template.name
)
def test_the_plan_is_the_one_that_was_looked_at(template: Template) -> None:
    path, found = GOLDEN / f"{template.name}.txt", written(template)
    if os.environ.get(UPDATE):
        path.write_text(found, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8")
    assert found == wanted, f"{template.name} changed; if it should, set {UPDATE}=1. It is now:\n{found}"


def test_there_is_no_plan_of_a_template_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} <= {template.name for template in ALL_TEMPLATES}
