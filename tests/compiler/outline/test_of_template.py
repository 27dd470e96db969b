"""Every template is an outline: as many steps of each kind, which move, compute and sum the same."""

from collections import Counter
from itertools import product

import pytest

from magus.compiler.ir import OpCase, OpChoice, OpPlan, PeerOrder, Reduction, TileGroup, Transfer
from magus.compiler.outline.write import rejections_on, written_out
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES, Cut, Template
from tests.helpers.plans.outline_of_template import outline_of
from tests.helpers.plans.outline_text import outline_text
from tests.helpers.scenarios.outlines import DMA3, ROWS, SM8, read, scenarios

SCENARIOS = scenarios()
# Kernels beside a collective, nodes and switches that sum are in test_declarative_build.py or not in these scenarios.
ELSEWHERE = ("bulk", "hierarchical", "nvls")
# An outline names an algorithm, and no trees.
WITHOUT_TREES = tuple(template for template in ALL_TEMPLATES if not template.has("trees"))


def choices(template: Template, scenario: OpCase) -> list[OpChoice]:
    n = scenario.num_ranks
    chunks = [n] if template.cut is Cut.SHARD else [n, 2 * n, 4 * n]
    algorithms = ["", "ring", "double_tree"] if template.has("algorithm") else [""]
    orders = [PeerOrder.ROTATED, PeerOrder.REVERSED] if template.has("order") else [PeerOrder.ROTATED]
    lanes = [0, 3] if template.has("parts") else [0]
    parts = [((0, 32), (96, 32), (0, 32)), ((96, 95), (0, 1))] if template.has("parts") else [()]
    return [
        OpChoice(
            template.name,
            count,
            engine,
            template.default_streams,
            algorithm=algorithm,
            order=order,
            lanes=lane,
            parts=each,
        )
        for count, algorithm, order, lane, each, engine in product(
            chunks, algorithms, orders, lanes, parts, (DMA3, SM8)
        )
    ]


@pytest.mark.quick(5)
@pytest.mark.parametrize("template", WITHOUT_TREES, ids=lambda template: template.name)
def test_a_template_is_an_outline(template: Template) -> None:
    compared = 0
    for scenario in SCENARIOS:
        for choice in choices(template, scenario):
            if scenario.shape.pattern not in template.patterns or reject_choice(scenario, choice) is not None:
                continue
            outline = outline_of(choice, scenario.num_ranks, scenario.shape.pattern)
            assert outline is not None and not list(rejections_on(scenario, outline)), choice
            assert read(scenario, outline_text(outline, "s", "w")) == outline

            one, other = build_op_plan(scenario, choice), build_op_plan(scenario, written_out(scenario, outline))

            assert content(one, scenario) == content(other, scenario), (choice, scenario.shape.pattern)
            assert (one.compute_sms, one.staging_bytes) == (other.compute_sms, other.staging_bytes)
            compared += 1
    assert compared or template.name in ELSEWHERE


def content(schedule: OpPlan, scenario: OpCase) -> list[Counter[object]]:
    """What each rank does, without names and order."""
    return [
        Counter(_content(step) for step in schedule.steps_of(rank))
        for rank in range(scenario.num_ranks if schedule.by_rank else 1)
    ]


def _content(step: object) -> object:
    match step:
        case Transfer():
            return step.direction, step.region, step.peer, step.lane, step.reduce, step.reach, step.origin
        case TileGroup():
            return frozenset(step.regions), step.k, step.stream, step.accumulate
        case Reduction():
            return step.region, step.num_parts, step.stream
        case _:
            raise AssertionError(step)


def test_parts_that_differ_by_peer_are_no_outline() -> None:
    scenario = SCENARIOS[0]
    uneven = ((ROWS, 32, 0, 96), (0, 64, 96, 0))

    choice = OpChoice("bespoke", scenario.num_ranks, DMA3, parts=uneven)

    assert outline_of(choice, scenario.num_ranks, scenario.shape.pattern) is None
