"""The schema of plans: docs hold it, what is written satisfies it, and what it forbids is not read."""

import json

import pytest

from magus.compiler.planfile.forms import plan_schema
from magus.compiler.planfile.write import document_text, op_plan_document
from magus.compiler.text.diagnostics import CompileError
from magus.compiler.text.json_forms import DIALECT
from tests.helpers.paths import DOCS
from tests.helpers.plans.documents import plan_from_document
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.plans.plans import BODIES, all_schedules, scenario_of
from tests.helpers.some import some


def test_the_documents_hold_the_schema() -> None:
    assert json.loads((DOCS / "plan.schema.json").read_text(encoding="utf-8")) == plan_schema()
    assert plan_schema()["$schema"] == DIALECT == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("body", BODIES)
def test_every_plan_that_is_written_satisfies_it(body: str) -> None:
    for schedule in some(all_schedules(body)):
        document = json.loads(document_text(op_plan_document(scenario_of(body), schedule)))

        assert is_valid(document, plan_schema())


@pytest.mark.parametrize("key", ["schema", "scenario", "plans", "parts"])
def test_a_plan_without_what_it_needs_does_not(key: str) -> None:
    document = json.loads(document_text(op_plan_document(scenario_of("AG+GEMM"), all_schedules("AG+GEMM")[0])))
    assert document.pop(key)

    assert not is_valid(document, plan_schema())
    with pytest.raises(CompileError):
        plan_from_document(scenario_of("AG+GEMM"), document)


def test_steps_for_all_and_for_each_do_not_stand_together() -> None:
    document = json.loads(document_text(op_plan_document(scenario_of("send_recv"), all_schedules("send_recv")[0])))

    (plan,) = document["plans"]
    assert is_valid(document, plan_schema())
    for more in ("steps", "overrides"):
        assert not is_valid(document | {"plans": [plan | {more: []}]}, plan_schema())


def test_keys_that_nobody_knows_are_forbidden_everywhere() -> None:
    document = json.loads(document_text(op_plan_document(scenario_of("AG+GEMM"), all_schedules("AG+GEMM")[0])))
    (plan,), (part,) = document["plans"], document["parts"]
    of_plan = (plan, plan["engine"], plan["steps"][0], plan["steps"][0]["region"])
    for inner in (document, document["scenario"], document["scenario"]["ops"][0], part, *of_plan):
        inner["comment"] = "no"
        assert not is_valid(document, plan_schema())
        del inner["comment"]
    assert is_valid(document, plan_schema())
