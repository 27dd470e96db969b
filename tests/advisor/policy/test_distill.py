"""Distilled rules: right where they say so, the same as Python and as JSON, and fast."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from magus.advisor import Request, RequestError
from magus.advisor.candidates.predicted import predicted_candidates
from magus.advisor.learned.boosted_trees import TreeNode, picked, small_tree
from magus.advisor.policy.distill import (
    FEATURES,
    STATIC_FEATURES,
    DistilledRule,
    distilled,
    rule_document,
    rule_python,
    summary,
)
from magus.compiler.planfile.file import ignore_warnings
from magus.compiler.planning.build import reject_choice
from magus.compiler.request.scenario import scenario_of
from magus.compiler.resolve.schedules.from_text import read_choice, resolve_schedule
from tests.helpers.commands import magus

REQUEST = Request("AG+GEMM", m=4096, n=4096, k=4096, gpu="H100", ranks=8)
NUM_SHAPES = 80
INPUTS = ("flops_per_byte", "m_over_k", "traffic_bytes")
SHAPES = [(m, n, k) for m in (16, 512, 2048, 8192, 32768) for n in (1024, 3584) for k in (2048, 8192)]


@pytest.fixture(scope="module")
def rule() -> DistilledRule:
    return distilled(REQUEST, num_shapes=NUM_SHAPES)


@pytest.mark.slow
def test_it_is_better_than_any_single_schedule(rule: DistilledRule) -> None:
    assert (rule.shapes, rule.tested) == (NUM_SHAPES * 3 // 4, NUM_SHAPES // 4)
    assert rule.exact >= 0.6 and rule.loss < 0.05
    assert rule.loss < rule.fixed_loss / 3


def test_it_picks_what_other_widths_can_be_cut_for(rule: DistilledRule) -> None:
    """Widths that no list of models has."""
    losses = []
    for m, n, k in ((4096, 1280, 4096), (1024, 2432, 6400), (16384, 13696, 5120), (256, 640, 9216)):
        scenario = scenario_of(replace(REQUEST, m=m, n=n, k=k)).case
        choices = [read_choice(scenario, text) for text in rule.schedules]
        legal = tuple(choice for choice in choices if reject_choice(scenario, choice) is None)
        us = {candidate.expression: candidate.best_us for candidate in predicted_candidates(scenario, legal)}
        losses.append(us[rule.schedule(m, n, k)] / min(us.values()) - 1)

    assert sum(losses) / len(losses) < 0.05


@pytest.mark.slow
def test_it_is_the_same_each_time(rule: DistilledRule) -> None:
    again = distilled(REQUEST, num_shapes=NUM_SHAPES)
    assert (again.root, again.loss) == (rule.root, rule.loss)
    assert distilled(REQUEST, num_shapes=NUM_SHAPES, seed=1).loss != rule.loss


def test_as_python_and_as_json_it_picks_the_same(rule: DistilledRule) -> None:
    names: dict[str, Any] = {}
    exec(compile(rule_python(rule), "rule.py", "exec"), names)
    document = json.loads(json.dumps(rule_document(rule)))

    def by_document(shape: tuple[int, int, int]) -> str:
        ratios, node = dict(zip(FEATURES, rule.machine.ratios(*shape), strict=True)), document["tree"]
        while "feature" in node:
            node = node["then"] if ratios[node["feature"]] <= node["at_most"] else node["else"]
        return str(node["schedule"])

    picks = [rule.schedule(*shape) for shape in SHAPES]
    assert [names["schedule"](*shape) for shape in SHAPES] == picks == [by_document(shape) for shape in SHAPES]
    assert len(set(picks)) >= 3
    assert summary(rule).replace("\n", " ") in rule_python(rule).replace("\n", " ")


def test_its_schedules_are_schedules(rule: DistilledRule) -> None:
    for shape in SHAPES:
        m, n, k = shape
        schedule = resolve_schedule(
            scenario_of(replace(REQUEST, m=m, n=n, k=k)).case, rule.schedule(*shape), ignore_warnings
        )
        assert schedule.expression == rule.schedule(*shape)
    assert SHAPES


def test_a_leaf_picks_what_costs_least_and_not_what_parts_best() -> None:
    features = np.arange(20.0)[:, None]
    costs = np.zeros((20, 2))
    costs[:10, 0], costs[10:, 1] = 0.01, 9.0  # the second is a hair better below, and far worse above
    root = small_tree(features, costs, 4, 0)

    assert isinstance(root, TreeNode)
    assert [picked(root, [value]) for value in (0, 9, 10, 19)] == [1, 1, 0, 0]


def test_a_tree_has_no_more_leaves_than_help_at_rows_it_has_not_seen() -> None:
    random = np.random.default_rng(3)
    features = random.uniform(size=(400, 3))
    seldom = random.uniform(size=400) < 0.25  # the other is the better one, for no reason in the features
    costs = np.full((400, 2), 0.1)
    costs[np.arange(400), ((features[:, 1] > 0.6) ^ seldom).astype(int)] = 0.0

    def leaves(node: TreeNode) -> int:
        return 1 if node.below is None or node.above is None else leaves(node.below) + leaves(node.above)

    root = small_tree(features, costs, 24, 0)

    assert 2 <= leaves(root) <= 4
    assert [picked(root, [0.5, value, 0.5]) for value in (0.1, 0.5, 0.7, 0.9)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("all_reduce", "--gpu", "h100"), "MGS203 error: pattern: unknown: 'all_reduce'"),
        (("GEMM", "--gpu", "h100"), "MGS203 error: pattern: unknown: 'GEMM'"),
        (("AG+GEMM", "--gpu", "h10"), "did you mean 'H100'?"),
        (("AG+GEMM", "--gpu", "h100", "--dtype", "bf17"), "did you mean 'bf16'?"),
        (("AG+GEMM", "--gpu", "mi300x", "--topology", "switch"), "no switch ships for MI300X"),
    ],
)
def test_what_has_no_rule_is_said(words: tuple[str, ...], message: str) -> None:
    done = magus("distill", *words)
    assert done.exit_code == 1 and message in done.stderr and done.stdout == ""


def test_other_patterns_are_no_rules() -> None:
    with pytest.raises(RequestError, match="waits for a collective"):
        distilled(Request("GEMM", m=64, n=64, k=64, gpu="H100", ranks=2))


def test_the_command_writes_it() -> None:
    done = magus("distill", "GEMM+RS", "--gpu", "h100", "--ranks", "4", "--shapes", "40")
    assert done.exit_code == 0 and "its pick is the best of" in done.stderr
    assert done.stdout.startswith('"""Which schedule for GEMM+RS of bf16 on 4 x H100.\n')
    as_json = magus("distill", "GEMM+RS", "--gpu", "h100", "--ranks", "4", "--shapes", "40", "--json")
    assert json.loads(as_json.stdout)["schema"] == "magus-rule/1"


MI300X = Request("AG+GEMM", m=4096, n=4096, k=4096, gpu="MI300X", ranks=8)


@pytest.fixture(scope="module")
def static() -> DistilledRule:
    return distilled(MI300X, num_shapes=60, static=True)


def test_the_static_rule_is_of_four_schedules_and_what_the_paper_looks_at(static: DistilledRule) -> None:
    text, document = rule_python(static), rule_document(static)

    assert len(static.schedules) == 4 and "kernel=sharing" in static.schedules[2]
    names: dict[str, Any] = {}
    exec(compile(text, "rule.py", "exec"), names)
    picks = [static.schedule(*shape) for shape in SHAPES]
    assert [names["schedule"](*shape) for shape in SHAPES] == picks and len(set(picks)) >= 2
    used = {name for name in FEATURES if f"    {name} = " in text}
    assert len(used) >= 2 and used <= set(STATIC_FEATURES)
    assert document["flops_per_byte"] == pytest.approx(1307e12 / 5.3e12)


@pytest.mark.slow
def test_the_static_rule_is_right_more_often_than_not_and_loses_less_than_one_schedule() -> None:
    rule = distilled(MI300X, num_shapes=300, static=True)

    assert rule.exact > 0.7 and rule.loss < rule.fixed_loss


def test_the_static_rule_is_for_one_pattern() -> None:
    done = magus("distill", "GEMM+RS", "--gpu", "mi300x", "--static")

    assert done.exit_code == 1 and "FiCCO's rule is for AG+GEMM" in done.stderr
