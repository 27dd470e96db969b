"""Plans of graphs as JSON: read back they are the same, and nothing in them is believed."""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import Plan, Scenario
from magus.compiler.planfile.file import plan_in_file
from magus.compiler.planfile.forms import plan_schema
from magus.compiler.planfile.write import document_text, op_plan_document, plan_document
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL, resolve_schedule, schedule_named
from magus.simcore.lower.plan import lower
from tests.helpers.marks import first
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.plans.plans import all_schedules, scenario_of
from tests.helpers.scenarios.mlp_backward import backward, plan_of_layers

Document = dict[str, Any]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return backward()


def written(scenario: Scenario, name: str = "late", layers: int = 2) -> Document:
    choice = {each.name: each for each in (*scenario.schedules, SERIAL)}[name]
    plan = plan_of_layers(scenario, choice, layers)[1]
    document: Document = json.loads(document_text(plan_document(scenario.system, scenario.workload, plan)))
    return document


def read(scenario: Scenario, document: object, folder: Path) -> Plan:
    path = folder / "p.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return plan_in_file(scenario, path)


def errors(scenario: Scenario, document: object, folder: Path) -> list[tuple[str, str]]:
    with pytest.raises(CompileError) as caught:
        read(scenario, document, folder)
    return [(found.code.name, found.message) for found in caught.value.diagnostics]


@pytest.mark.parametrize("name", ["pairs", "late", "ring", "serial"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_plan_that_is_read_back_is_the_same(scenario: Scenario, tmp_path: Path, name: str, layers: int) -> None:
    choice = {each.name: each for each in (*scenario.schedules, SERIAL)}[name]
    plan = plan_of_layers(scenario, choice, layers)[1]

    found = read(scenario, written(scenario, name, layers), tmp_path)

    assert found == replace(plan, expression=str(tmp_path / "p.json"))
    assert schedule_named(scenario, str(tmp_path / "p.json")) == found


def test_kernels_whose_times_differ_from_rank_to_rank(tmp_path: Path) -> None:
    text = """use "nvidia/h100"
    system node { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on node { x = tensor bf16[64, 64]; y = all_reduce(timed(x, takes=[9 ms, TIME])) }"""
    uneven, other = (compile_text(text.replace("TIME", time)).scenario("w") for time in ("90 ms", "91 ms"))
    plan = build_plan(uneven.system, uneven.workload, SERIAL)
    document = document_text(plan_document(uneven.system, uneven.workload, plan))

    assert read(uneven, document, tmp_path) == replace(plan, expression=str(tmp_path / "p.json"))
    assert [code for code, _ in errors(other, document, tmp_path)] == ["MGS524"]


def test_layers_share_plans(scenario: Scenario) -> None:
    one, three = (written(scenario, layers=layers) for layers in (1, 3))

    assert len(three["parts"]) == 3 * len(one["parts"])
    assert three["plans"] == one["plans"]
    assert any(wait["on"].endswith("@2") for part in three["parts"] for wait in part.get("waits", ()))


def test_what_is_written_satisfies_the_schema(scenario: Scenario) -> None:
    schema = plan_schema()

    assert all(is_valid(written(scenario, name), schema) for name in ("pairs", "late", "ring", "serial"))
    assert not is_valid(written(scenario) | {"comment": "no"}, schema)
    assert not is_valid(written(scenario) | {"parts": []}, schema)


def _part(document: Document, name: str) -> Document:
    return next(part for part in document["parts"] if part["name"] == name)


def _without(name: str) -> Callable[[Document], object]:
    return lambda document: document["parts"].remove(_part(document, name))


def _set(name: str, /, **changes: object) -> Callable[[Document], object]:
    return lambda document: _part(document, name).update(changes)


def _swap(one: str, other: str) -> Callable[[Document], object]:
    def change(document: Document) -> None:
        parts = document["parts"]
        a, b = (parts.index(_part(document, name)) for name in (one, other))
        parts[a], parts[b] = parts[b], parts[a]

    return change


WRONG: dict[str, tuple[Callable[[Document], object], str, str]] = {
    "no wait": (_set("du", waits=[]), "MGS508", "du reads dh, and does not wait for dh, which makes it"),
    "too early a wait": (_set("du", waits=[{"on": "dh", "what": "begun"}]), "MGS508", "du reads dh"),
    "only kernels wait": (
        _set("du", waits=[{"on": "dh", "what": "end", "kernels_only": True}]),
        "MGS508",
        "du reads dh",
    ),
    "halves apart": (_set("dx.reduce_scatter", waits=[]), "MGS508", "dx.reduce_scatter reads one half of dx"),
    "the layer before": (_set("dh@2", waits=[], step_waits=[]), "MGS508", "dh@2 reads dx, and does not wait for"),
    "a wait for nobody": (_set("du", waits=[{"on": "dz", "what": "end"}]), "MGS502", "dz, which is no part"),
    "a step of nobody": (
        _set("du", step_waits=[{"step": "g0", "on": "dh", "of": "g77"}]),
        "MGS502",
        "du.g0 waits for g77 of dh, which is no kernel, sum or signal there",
    ),
    "a transfer": (
        _set("du", step_waits=[{"step": "g0", "on": "xg", "of": "x1"}]),
        "MGS502",
        "x1 of xg, which is no kernel, sum or signal there",
    ),
    "no step that waits": (
        _set("du", step_waits=[{"step": "none", "on": "dh", "of": "own"}]),
        "MGS502",
        "du has no step none that could wait",
    ),
    "a circle": (
        _set("dh", waits=[{"on": "du", "what": "end"}]),
        "MGS503",
        "parts wait for each other: ",
    ),
    "an order": (_swap("du", "dh"), "MGS503", "du is issued before dh, which it waits for"),
    "a part is missing": (_without("d_wup@2"), "MGS507", "d_wup@2 is not computed: no part has this name"),
    "half an op is missing": (_without("dx.reduce_scatter"), "MGS509", "plans[2]: dx: "),
    "a part twice": (lambda d: d["parts"].append(_part(d, "d_wup")), "MGS206", "there are two parts d_wup"),
    "an unknown op": (_set("du", name="dv"), "MGS203", "parts[1].name: unknown part 'dv'"),
    "the other op": (_set("du", op="dh"), "MGS137", "du is a part of du"),
    "the other layer": (_set("du", layer=2), "MGS137", "du is in layer 1"),
    "a stream of others": (_set("xg", stream=0), "MGS509", "xg is all_gather, and stands in stream 0"),
    "kernels behind kernels": (_set("du", behind_kernels=True), "MGS509", "du has kernels"),
    "no such plan": (_set("du", plan=99), "MGS307", "parts[1].plan: a number from 0 to"),
    "the plan of another": (_set("du", plan=0), "MGS509", "du: "),
    "less memory": (
        lambda d: _part(d, "dh")["staging"].update(bytes=1),
        "MGS137",
        "parts[0].staging.bytes: dh needs ",
    ),
    "memory free too early": (
        lambda d: _part(d, "dh")["staging"].update(until=["dh"]),
        "MGS137",
        "what dh holds is needed until dh, d_wdn have ended",
    ),
    "other ranks": (lambda d: d["scenario"].update(ranks=8), "MGS524", "ranks: the plan is for 8, back has 4"),
    "more layers": (lambda d: d["scenario"].update(layers=9), "MGS524", "the plan has 9 layers, back has 8"),
    "fewer ops": (lambda d: d["scenario"]["ops"].pop(), "MGS524", "the plan is for 11 ops, back has 12"),
    "another read": (
        lambda d: d["scenario"]["ops"][2]["reads"].pop(),
        "MGS524",
        "scenario.ops[2]: reads: the plan is for",
    ),
    "another shape": (
        lambda d: d["scenario"]["ops"][0]["gemm"].update(n=1),
        "MGS524",
        "scenario.ops[0]: gemm: the plan is for",
    ),
    "a plan that cannot run": (
        lambda d: d["plans"][0]["steps"].pop(0),
        "MGS507",
        "plans[0]: dh: ",
    ),
    "an engine beyond the GPU": (lambda d: d["plans"][0]["engine"].update(count=400), "MGS401", "plans[0]: dh: "),
    "no list": (lambda d: d.update(parts={}), "MGS137", "parts: a list is expected"),
    "no key": (lambda d: d.update(part=[]), "MGS137", "there is no key 'part' here"),
    "an old schema": (lambda d: d.update(schema="magus-graph-plan/1"), "MGS137", "is an older form of plans"),
    "a plan of no part": (lambda d: d["plans"].append(d["plans"][0]), "MGS137", "no part has this plan"),
    "a priority": (_set("du", priority=1 << 40), "MGS307", "parts[1].priority"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.replace(" ", "-"))
def test_what_is_wrong_is_reported(scenario: Scenario, tmp_path: Path, wrong: str) -> None:
    change, code, message = WRONG[wrong]
    document = written(scenario)
    del document["hash"]
    change(document)

    found = errors(scenario, document, tmp_path)

    assert any(code == each and message in text for each, text in found), found


def test_a_plan_that_was_changed(scenario: Scenario, tmp_path: Path) -> None:
    document = written(scenario)
    _part(document, "du")["priority"] = 1

    assert [code for code, _ in errors(scenario, document, tmp_path)] == ["MGS525"]
    del document["hash"]
    assert read(scenario, document, tmp_path).part("du").priority == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["pairs", "late", "ring", "serial"])
def test_no_wait_can_be_left_out(scenario: Scenario, tmp_path: Path, name: str) -> None:
    """But those that stand beside something, which order nothing that is read."""
    whole = written(scenario, name)
    waits = [
        (part["name"], key, place, wait.get("what") == "begun")
        for part in whole["parts"]
        for key in ("waits", "step_waits")
        for place, wait in enumerate(part.get(key, ()))
    ]
    without = [copy.deepcopy(whole) for _ in waits]
    for document, (part_name, key, place, _) in zip(without, waits, strict=True):
        del document["hash"], _part(document, part_name)[key][place]
    feeding = [document for document, (*_, beside) in zip(without, waits, strict=True) if not beside]
    others = [document for document, (*_, beside) in zip(without, waits, strict=True) if beside]

    assert feeding
    assert all({code for code, _ in errors(scenario, each, tmp_path)} == {"MGS508"} for each in feeding)
    assert all(read(scenario, each, tmp_path).parts for each in others)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": 1}', '{"schema": "magus-plan/2", "schema": 2}', "[" * 5000, "nan"]
)
def test_what_is_no_plan_at_all(scenario: Scenario, tmp_path: Path, text: str) -> None:
    assert errors(scenario, text, tmp_path)


def test_hundreds_of_errors_are_no_traceback(scenario: Scenario, tmp_path: Path) -> None:
    document = written(scenario)
    document["parts"] = [{"name": f"p{number}", "op": "x", "plan": 0} for number in range(1000)]
    del document["hash"]

    assert len(errors(scenario, document, tmp_path)) == 200


STRANGE: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    1,
    10**30,
    1.5,
    "",
    "dh",
    "dx@2",
    "own",
    [],
    {},
    "\x1b[31m",
    "x" * 500,
    [[]],
    {"a": 1},
)


def drawn_place(rng: random.Random, value: Any) -> tuple[Any, str | int]:
    """A place inside a document, as what holds it and its key there: near the root as often as far from it."""
    while True:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not value[key] or not isinstance(value[key], dict | list) or rng.random() < 0.3:
            return value, key
        value = value[key]


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", first(range(12), 2))
def test_whatever_stands_there_it_is_read_or_refused(scenario: Scenario, tmp_path: Path, seed: int) -> None:
    """And what is read can be lowered."""
    rng, whole = random.Random(seed), written(scenario, "pairs")
    del whole["hash"]
    read_or_not = []
    for _ in range(60):
        document = copy.deepcopy(whole)
        around, last = drawn_place(rng, document)
        if rng.random() < 0.3:
            del around[last]
        else:
            around[last] = rng.choice(STRANGE)
        try:
            plan = read(scenario, document, tmp_path)
        except CompileError:
            read_or_not.append(False)
        else:
            read_or_not.append(lower(scenario.system, plan, unit_bytes=4096).program.num_ranks == 4)

    assert set(read_or_not) == {False, True}


def test_a_plan_for_other_ops_is_refused(scenario: Scenario, tmp_path: Path) -> None:
    pair, schedule = scenario_of("AG+GEMM"), all_schedules("AG+GEMM")[0]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(written(scenario)))

    with pytest.raises(CompileError, match="MGS524"):
        resolve_schedule(pair, str(path))
    document = document_text(op_plan_document(pair, schedule))
    assert errors(scenario, document, tmp_path) == [
        ("MGS524", "p.json: scenario.ops: the plan is for 1 ops, back has 6")
    ]
