"""Policy tables of layers: ranges, flips by simulation, what each op does, and a reader that fails closed."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from magus.advisor.candidates.advice import Advice
from magus.advisor.policy.layer_rules import SettingAxis, layer_policy, ops_of
from magus.advisor.policy.reader import Policy, PolicyError
from magus.advisor.policy.table import SCHEMA, PolicyTable, policy_schema
from magus.compiler import compile_text
from magus.compiler.ir import Cancelled, Scenario, Schedule
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.scenarios.mlp_backward import TEXT, backward, rows_of

SIZES = [1024, 2048, 4096, 8192]
FLIP = 3000
"""``pairs`` is faster below, ``late`` from here on."""


def times(m: int) -> dict[str, int]:
    return {"serial": 4 * m, "pairs": 2 * m if m < FLIP else 3 * m, "late": 2 * m if m >= FLIP else 3 * m}


def advise(scenario: Scenario) -> Advice:
    found = times(rows_of(scenario))
    best = min(scenario.schedules[:2], key=lambda each: found[each.name])
    return replace(advice_by_hand(scenario, best, found[best.name], found["serial"]), marks=("a warning",))


def simulate(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
    return times(rows_of(scenario))[choice.name]


AXIS = SettingAxis("M", lambda size: backward(m=size))


@pytest.fixture(scope="module")
def policy() -> PolicyTable:
    return layer_policy(AXIS, SIZES, advise, simulate)


def test_two_rules_meet_where_the_schedules_do(policy: PolicyTable) -> None:
    first, second = policy.rules

    assert (first.least, first.schedule, second.schedule, second.most) == (1024, "pairs", "late", 8192)
    assert first.most + 1 == second.least
    assert FLIP <= second.least <= FLIP * (1 + 1 / 16) + 64
    assert first.gain == (2.0, 2.0) and first.loss == 0.0
    assert first.sizes == (1024, 2048) and second.sizes == (4096, 8192)


def test_a_rule_says_which_sizes_its_schedule_can_be_cut_for(policy: PolicyTable) -> None:
    sizes = [rule.sizes[0] + more * rule.multiple_of for rule in policy.rules for more in (1, 5)]
    rules = [rule for rule in policy.rules for _ in range(2)]

    cut = [ops_of(backward(m=m), rule.choice) for m, rule in zip(sizes, rules, strict=True) if rule.choice is not None]
    assert [len(ops) for ops in cut] == [len(rule.ops) for rule in rules]


def test_a_rule_says_what_each_op_does(policy: PolicyTable) -> None:
    late = policy.rules[1]
    ops = {op.part: op for op in late.ops}

    assert set(ops) == {"dh", "du", "dx", "xg", "dx.reduce_scatter", "d_wdn", "d_wup"}
    assert ops["dh"].schedule == "hetero_fused_1d(chunks=8, engine=dma(3))" and ops["dh"].copy_engines == 3
    assert (ops["dh"].template, ops["dh"].chunks) == ("hetero_fused_1d", 8)
    assert ops["dx"].schedule is None and ops["dx"].copy_engines == 0
    assert ops["xg"].starts_with == "dx" and ops["d_wdn"].stream == 1
    order = [op.part for op in late.ops]
    assert order.index("dx") < order.index("dx.reduce_scatter") and order.index("d_wdn") < order.index("d_wup")


def test_the_document_is_what_its_schema_says(policy: PolicyTable) -> None:
    document = json.loads(json.dumps(policy.document()))

    assert document["schema"] == SCHEMA and document["marks"] == ["a warning"]
    assert is_valid(document, policy_schema())
    assert not is_valid({**document, "rules": [{**document["rules"][0], "ops": []}]}, policy_schema())


def requested(**changed: object) -> dict[str, object]:
    return {"workload": "back", "gpu": "H100", "ranks": 4, "topology": "switch", "M": 2048, **changed}


def test_the_reader_of_one_op_reads_it(policy: PolicyTable) -> None:
    reader = Policy(policy.document())

    rule = reader.rule(**requested())
    assert rule is not None and rule["schedule"] == "pairs" and rule["ops"][0]["op"] == "dh"
    late = reader.rule(**requested(M=8192))
    assert late is not None and late["schedule"] == "late"
    padded = reader.rule(**requested(M=2049))
    assert padded is not None and padded["size"] == 2048 + padded["multiple_of"]


@pytest.mark.parametrize(
    "changed",
    [{"M": 512}, {"M": 16384}, {"M": None}, {"gpu": "H200"}, {"ranks": 8}, {"workload": "other"}],
)
def test_what_no_rule_is_about_has_no_answer(policy: PolicyTable, changed: dict[str, object]) -> None:
    assert Policy(policy.document()).rule(**requested(**changed)) is None


def test_a_table_of_one_model_is_not_for_another(policy: PolicyTable) -> None:
    mine = replace(policy, rules=tuple(replace(rule, model="Llama-3.1-70B") for rule in policy.rules))
    reader = Policy(mine.document())

    assert reader.rule(**requested()) is None and reader.rule(**requested(model="Llama-3.1-8B")) is None
    assert reader.rule(**requested(model="Llama-3.1-70B")) is not None


def test_an_altered_table_is_refused(policy: PolicyTable) -> None:
    document = policy.document()
    document["rules"][0]["schedule"] = "late"
    with pytest.raises(PolicyError, match="hash"):
        Policy(document)
    with pytest.raises(PolicyError, match="older Magus: write it again, magus export"):
        Policy({**policy.document(), "schema": "magus-layer-policy/1"})


def test_sizes_at_which_a_schedule_cannot_be_are_left_to_the_other() -> None:
    def only_pairs(scenario: Scenario, choice: Schedule, advice: Advice) -> int | None:
        between = rows_of(scenario) not in SIZES
        return None if between and choice.name == "late" else simulate(scenario, choice, advice)

    first, second = layer_policy(AXIS, SIZES, advise, only_pairs).rules

    assert 4096 * 15 / 16 <= second.least <= 4096 and first.most == second.least - 1


def test_a_table_with_gaps_is_none() -> None:
    calls: Iterator[int] = iter(range(3))

    def stopped(scenario: Scenario) -> Advice:
        if next(calls, None) == 2:
            raise Cancelled
        return advise(scenario)

    with pytest.raises(Cancelled):
        layer_policy(AXIS, SIZES, stopped, simulate)


def test_sizes_may_be_of_a_file() -> None:
    sizes = {"width": 256, "inner": 1024, "both": 2048, "ranks": 4, "layers": 2}
    text = "param M = 1024 in 64..8192 x2\n" + TEXT.format(m="M", **sizes)

    def at(size: int) -> Scenario:
        graph = compile_text(text, "back.mgs", (("M", str(size)),)).scenario()
        assert graph is not None
        return graph

    assert [rule.schedule for rule in layer_policy(SettingAxis("M", at), SIZES, advise, simulate).rules] == [
        "pairs",
        "late",
    ]
