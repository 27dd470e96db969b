"""Plans from others: what is wrong is told with its path in the file, and nothing makes a traceback."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.codes import Code
from magus.compiler.ir import OpCase, Plan, Workload
from magus.compiler.planfile.forms import MAX_STEPS, plan_schema
from magus.compiler.planfile.write import document_text, op_plan_document
from magus.compiler.text.diagnostics import CompileError, Report, Source, Span
from magus.compiler.text.json_forms import JsonPlace, read_json
from magus.compiler.verify.check import check_parts
from tests.helpers.marks import examples
from tests.helpers.plans.documents import built_from_document, places, plan_from_document, read_from_document
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.plans.plans import all_schedules, scenario_of

Json = dict[str, Any]


def document_of(body: str, at: int = 0) -> Json:
    schedule = all_schedules(body)[at]
    return json.loads(document_text(op_plan_document(scenario_of(body), schedule)))  # type: ignore[no-any-return]


def read_text(scenario: OpCase, text: str) -> Plan:
    """Read a plan as from a file, whatever the text."""
    report = Report()
    with report.attempt():
        item = read_json(text, JsonPlace("p.json", Span(Source("a.mgs", ""), 0, 0), report))
        return read_from_document(scenario, item, "read")
    raise CompileError(report.diagnostics)


def wrong(change: Callable[[Json], object], body: str = "AG+GEMM") -> list[tuple[Code, str]]:
    document = document_of(body)
    del document["hash"]
    change(document)
    with pytest.raises(CompileError) as caught:
        plan_from_document(scenario_of(body), document)
    return [(found.code, found.message) for found in caught.value.diagnostics]


def put(*path: str | int, value: object) -> Callable[[Json], None]:
    """Put ``value`` at a path of a document."""

    def change(document: Json) -> None:
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


PLAN = ("plans", 0)
STEP = (*PLAN, "steps", 0)
TILES = (*PLAN, "steps", -1)
OP = ("scenario", "ops", 0)
P = "plans[0]"
CASES = [
    (put("schema", value="magus-plan/9"), Code.MGS137, "schema: this release reads magus-plan/2"),
    (put("more", value=1), Code.MGS137, "there is no key 'more' here"),
    (put(*PLAN, "engine", value=None), Code.MGS137, f"{P}.engine: an object is expected here, got nothing"),
    (
        put(*PLAN, "engine", "count", value=0),
        Code.MGS307,
        f"{P}.engine.count: a number from 1 to 1048576 is expected here, got 0",
    ),
    (
        put(*PLAN, "engine", "count", value=True),
        Code.MGS137,
        f"{P}.engine.count: a whole number is expected here, got true",
    ),
    (
        put(*PLAN, "engine", "count", value=2.5),
        Code.MGS137,
        f"{P}.engine.count: a whole number is expected here, got a number",
    ),
    (put(*PLAN, "engine", "mode", value="fast"), Code.MGS137, f"{P}.engine.mode: unknown word 'fast'"),
    (put(*PLAN, "tactics", "wait", value="sleep"), Code.MGS137, f"{P}.tactics.wait: unknown word 'sleep'"),
    (put("expression", value=None), Code.MGS137, "expression: a text is expected here, got nothing"),
    (
        put(*PLAN, "overlaps", value=1),
        Code.MGS137,
        f"{P}.overlaps: true or false is expected here, got a whole number",
    ),
    (put("scenario", "ranks", value=8), Code.MGS524, "scenario: ranks: the plan is for 8, w has 4"),
    (put(*OP, "pattern", value="GEMM"), Code.MGS524, 'scenario.ops[0]: pattern: the plan is for "GEMM", w has'),
    (put(*OP, "moved", "rows", value=64), Code.MGS524, "scenario.ops[0]: moved: the plan is for"),
    (put(*OP, "gemm", "k", value=True), Code.MGS524, "scenario.ops[0]: gemm: the plan is for"),
    (put(*OP, "split", value=[1, 2, 3, 4]), Code.MGS524, "scenario.ops[0]: split: the plan is for [1, 2, 3, 4]"),
    (put(*PLAN, "ranks", value=[]), Code.MGS137, f"{P}: a plan has either 'steps' or 'ranks'"),
    (put(*PLAN, "steps", value={}), Code.MGS137, f"{P}.steps: a list is expected here, got an object"),
    (
        put(*PLAN, "steps", value=[{}] * (MAX_STEPS + 1)),
        Code.MGS137,
        f"{P}.steps: a list of at most 4096 is expected here",
    ),
    (put(*STEP, value=3), Code.MGS137, f"{P}.steps[0]: an object is expected here, got a whole number"),
    (put(*STEP, "kind", value="push"), Code.MGS137, f"{P}.steps[0].kind: unknown word 'push'"),
    (put(*STEP, "name", value="1a"), Code.MGS137, f"{P}.steps[0].name: '1a' is not a name"),
    (put(*STEP, "name", value="a" * 129), Code.MGS137, f"{P}.steps[0].name: a text of at most 128 characters"),
    (put(*STEP, "name", value="a\n"), Code.MGS137, f"{P}.steps[0].name: 'a\n' is not a name"),
    (put(*STEP, "peer", value=4), Code.MGS307, f"{P}.steps[0].peer: a number from 1 to 3 is expected here, got 4"),
    (
        put(*STEP, "peer", value="some"),
        Code.MGS137,
        f"{P}.steps[0].peer: a whole number is expected here, got a text",
    ),
    (put(*STEP, "lane", value=3), Code.MGS307, f"{P}.steps[0].lane: a number from 0 to 2 is expected here, got 3"),
    (put(*STEP, "after", value=["a", 3]), Code.MGS137, f"{P}.steps[0].after[1]: a text is expected here"),
    (put(*STEP, "region", "owner", value=-1), Code.MGS307, f"{P}.steps[0].region.owner: a number from 0 to 3"),
    (
        put(*STEP, "region", "rows", value=[1]),
        Code.MGS137,
        f"{P}.steps[0].region.rows: a list of 2 is expected here, got 1",
    ),
    (put(*STEP, "region", "rows", value=[8, 8]), Code.MGS306, f"{P}.steps[0].region.rows: 8:8 is empty"),
    (
        put(*STEP, "region", "rows", value=[0, 1 << 40]),
        Code.MGS307,
        f"{P}.steps[0].region.rows[1]: a number from 0 to",
    ),
    (
        put(*TILES, "regions", value=[]),
        Code.MGS137,
        f"{P}.steps[3].regions: a list of at least 1 is expected here, got 0",
    ),
    (put(*TILES, "stream", value=64), Code.MGS307, f"{P}.steps[3].stream: a number from 0 to 63"),
    (
        put(*PLAN, "overrides", value=[{"rank": 9, "step": {}}]),
        Code.MGS307,
        f"{P}.overrides[0].rank: a number from 0 to 3",
    ),
]


@pytest.mark.parametrize(("change", "code", "message"), CASES, ids=[message[:40] for _, _, message in CASES])
def test_what_is_wrong_is_reported_with_its_path(change: Callable[[Json], object], code: Code, message: str) -> None:
    (found,) = wrong(change)

    last = len(document_of("AG+GEMM")["plans"][0]["steps"]) - 1
    path = message.replace("steps[3]", f"steps[{last}]")
    assert found[0] is code
    assert found[1].startswith(f"plan: {path}"), found[1]


def test_every_wrong_step_is_reported() -> None:
    def change(document: Json) -> None:
        del document["plans"][0]["steps"][0]["signal"]
        document["plans"][0]["steps"][2]["region"]["shard"] = 0

    assert wrong(change) == [
        (Code.MGS137, "plan: plans[0].steps[0]: 'signal' is missing"),
        (Code.MGS137, "plan: plans[0].steps[2].region: there is no key 'shard' here"),
    ]


def test_steps_of_ranks_are_as_many_as_ranks() -> None:
    assert wrong(lambda document: document["plans"][0]["ranks"].pop(), "send_recv") == [
        (Code.MGS524, "plan: plans[0].ranks: steps of 3 ranks are here, there are 4")
    ]
    assert wrong(put(*PLAN, "overrides", value=[]), "send_recv")[0][1].endswith("nothing is overridden")


def test_a_plan_that_was_changed_has_another_hash() -> None:
    document = document_of("AG+GEMM")
    document["expression"] = "a name is no part of it"
    built_from_document(scenario_of("AG+GEMM"), document, "again")
    document["plans"][0]["steps"].append(document["plans"][0]["steps"].pop(0))

    with pytest.raises(CompileError) as caught:
        built_from_document(scenario_of("AG+GEMM"), document, "again")

    assert [found.code for found in caught.value.diagnostics] == [Code.MGS525]


def test_what_is_usual_may_be_left_out_or_said() -> None:
    scenario, document = scenario_of("AG+GEMM"), document_of("AG+GEMM")
    longer = copy.deepcopy(document)
    longer["plans"][0]["steps"][0] |= {"after": [], "reduce": False}
    longer["scenario"] |= {"batches": 1, "layers": 1}
    longer["parts"][0] |= {"layer": 1, "stream": 0, "priority": 0, "waits": []}
    shorter = {key: document[key] for key in ("schema", "scenario", "plans", "parts")}
    shorter["plans"] = [{key: document["plans"][0][key] for key in ("engine", "steps")}]

    whole = built_from_document(scenario, document, "whole")
    assert built_from_document(scenario, longer, "whole") == whole
    assert built_from_document(scenario, shorter, "whole") == whole


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", Code.MGS137, "p.json: line 1, column 1: no JSON"),
        ("{\n 'a': 1}", Code.MGS137, "p.json: line 2, column 2: no JSON"),
        ("[]", Code.MGS137, "p.json: an object is expected here, got a list"),
        ("null", Code.MGS137, "p.json: an object is expected here, got nothing"),
        ('{"schema": NaN}', Code.MGS137, "p.json: NaN is no number of JSON"),
        ('{"schema": -Infinity}', Code.MGS137, "p.json: -Infinity is no number of JSON"),
        ('{"a": 1, "a": 1}', Code.MGS137, "p.json: the key 'a' stands twice"),
        ('{"a": ' + "9" * 5000 + "}", Code.MGS133, "p.json: a number has 5000 digits"),
        ('{"a": 1.' + "9" * 5000 + "}", Code.MGS133, "p.json: a number has 5002 digits"),
        ("[" * 100_000, Code.MGS132, "p.json: brackets are nested too deeply"),
        ('{"a":' * 100_000, Code.MGS132, "p.json: brackets are nested too deeply"),
        ('"\\ud800"', Code.MGS137, "p.json: an object is expected here, got a text"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_text_that_is_no_plan(text: str, code: Code, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        read_text(scenario_of("AG+GEMM"), text)

    (found,) = caught.value.diagnostics
    assert (found.code, found.message[: len(message)]) == (code, message)


def test_a_lone_half_of_a_character_is_reported() -> None:
    found = wrong(put(*STEP, "name", value="\ud800"))

    assert found[0][0] is Code.MGS137


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("all")
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@given(st.sampled_from(("AG+GEMM", "GEMM+RS", "all_reduce", "send_recv")), st.data())
@examples(120)
def test_a_plan_changed_anywhere_is_read_or_refused(body: str, data: st.DataObject) -> None:
    document = document_of(body)
    if data.draw(st.booleans()):
        del document["hash"]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)[1:]))
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        match data.draw(st.sampled_from(("value", "drop", "twice"))):
            case "drop":
                del inner[path[-1]]
            case "twice" if isinstance(inner, list):
                inner += copy.deepcopy(inner[:1])
            case _:
                inner[path[-1]] = data.draw(values)
    used(scenario_of(body), document)


@given(values)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(CompileError):
        plan_from_document(scenario_of("AG+GEMM"), value)


@given(st.sampled_from(("AG+GEMM", "send_recv")), st.data())
def test_a_text_changed_anywhere_is_read_or_refused(body: str, data: st.DataObject) -> None:
    text = document_text(op_plan_document(scenario_of(body), all_schedules(body)[0]))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 20)))
    changed = (
        text[:start] + data.draw(st.text(max_size=6) | st.sampled_from(("NaN", "1e999", "{", '"', "-"))) + text[stop:]
    )
    try:
        read_text(scenario_of(body), changed)
    except CompileError as error:
        assert error.diagnostics


def used(scenario: OpCase, document: object) -> None:
    """A plan that is read fits the published schema, and is built and checked without other exceptions."""
    try:
        plan = built_from_document(scenario, document, "changed")
    except CompileError as error:
        assert error.diagnostics and all(str(found.message) for found in error.diagnostics)
        return
    assert is_valid(document, plan_schema())
    assert check_parts(scenario.system, Workload.of_one(scenario.shape), plan) == ()
