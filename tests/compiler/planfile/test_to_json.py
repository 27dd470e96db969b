"""Plans as JSON: what is written is read back, and a plan has one hash."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.ir import (
    PLAN_MODES,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    IndexRange,
    Kernels,
    LaunchMode,
    OpPlan,
    Override,
    Reach,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    Wait,
    WaitPer,
)
from magus.compiler.planfile.forms import plan_schema
from magus.compiler.planfile.write import SCHEMA, document_text, op_plan_document, plan_of
from magus.compiler.planning.build import build_op_plan, declared
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import examples
from tests.helpers.plans.documents import plan_from_document, schedule_hash, steps_from_document
from tests.helpers.plans.json_schema import is_valid
from tests.helpers.plans.plans import BODIES, all_schedules, scenario_of, text_of
from tests.helpers.some import some

RANKS = 4
names = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
waits = st.lists(names, max_size=3).map(tuple)
spans = st.tuples(st.integers(0, 1 << 30), st.integers(1, 1 << 30)).map(lambda ends: IndexRange(ends[0], sum(ends)))
owners = st.integers(0, RANKS - 1)
regions = st.builds(Region, owners, spans, spans)
several = st.builds(Region, owners, spans, spans, st.lists(owners, max_size=RANKS - 1).map(tuple))
streams = st.integers(0, 63)
puts = st.builds(
    Transfer, names, st.sampled_from(Direction), several, st.integers(1, RANKS - 1), names, waits,
    st.none() | st.integers(0, 2), st.booleans(),
)  # fmt: skip
to_all = st.builds(
    Transfer, names, st.sampled_from(Direction), regions, st.just(0), names, waits, st.none(), st.booleans(),
    st.just(Reach.ALL),
)  # fmt: skip
groups = st.builds(
    TileGroup, names, st.lists(regions, min_size=1, max_size=3).map(tuple), spans, waits, streams, st.booleans(),
    st.just(0), st.lists(spans, max_size=2).map(tuple),
)  # fmt: skip
reductions = st.builds(Reduction, names, regions, st.integers(2, RANKS), waits, streams)
steps: st.SearchStrategy[Step] = st.one_of(puts, to_all, groups, reductions)
plans_of_a_rank = st.lists(steps, max_size=4).map(tuple)
tactics = st.builds(
    ExecutionOptions, st.sampled_from(Direction), st.sampled_from(CopyProtocol), st.just(Kernels.PERSISTENT),
    st.sampled_from((Wait.POLL, Wait.MONITOR)), st.sampled_from(WaitPer), st.sampled_from(LaunchMode),
)  # fmt: skip
engines = st.builds(EngineChoice, st.sampled_from(EngineKind), st.integers(3, 200), st.sampled_from(PLAN_MODES))
overrides = st.lists(st.builds(Override, st.integers(0, RANKS - 1), steps), max_size=3).map(tuple)
by_ranks = st.lists(plans_of_a_rank, min_size=RANKS, max_size=RANKS).map(tuple)


@st.composite
def schedules(draw: st.DrawFn) -> OpPlan:
    engine, how = draw(engines), draw(tactics | st.just(ExecutionOptions()))
    if draw(st.booleans()):
        by_rank = draw(by_ranks)
        return OpPlan("any", by_rank[0], engine, 0, 0, (), how, by_rank)
    return OpPlan("any", draw(plans_of_a_rank), engine, 0, 0, draw(overrides), how)


@given(schedules())
@examples(80)
def test_any_plan_is_read_back(schedule: OpPlan) -> None:
    scenario = scenario_of("AG+GEMM")

    document = json.loads(document_text(op_plan_document(scenario, schedule)))

    assert steps_from_document(scenario, document) == plan_of(scenario, schedule)
    assert is_valid(document, plan_schema())


@pytest.mark.quick(5)
@pytest.mark.parametrize("body", BODIES)
def test_every_template_is_the_same_schedule_again(body: str) -> None:
    scenario = scenario_of(body)
    for schedule in some(all_schedules(body)):
        document = json.loads(document_text(op_plan_document(scenario, schedule)))

        again = build_op_plan(scenario, plan_from_document(scenario, document), schedule.expression)

        assert again == schedule
        assert not check_plan(scenario, again)


def test_templates_of_all_kinds_are_among_them() -> None:
    found = [schedule for body in BODIES for schedule in all_schedules(body)]

    assert sum(bool(schedule.by_rank) for schedule in found) > 20
    assert sum(not plan_of(scenario_of("AG+GEMM"), schedule).overlaps for schedule in found) > 20


def test_a_hash_is_of_what_is_done_and_not_of_names() -> None:
    scenario, schedule = scenario_of("AG+GEMM"), all_schedules("AG+GEMM")[0]
    renamed = compile_text(text_of("AG+GEMM").replace("workload w", "workload v").replace("x =", "q =")
                           .replace("(x)", "(q)")).scenario().case  # fmt: skip

    same = schedule_hash(scenario, schedule)

    assert schedule_hash(scenario, replace(schedule, expression="other")) == same
    assert schedule_hash(renamed, schedule) == same
    assert schedule_hash(scenario_of("A2A+GEMM"), schedule) != same
    assert schedule_hash(scenario, replace(schedule, engine=EngineChoice(EngineKind.DMA, 2))) != same
    assert schedule_hash(scenario, replace(schedule, steps=schedule.steps[::-1])) != same
    sliced = [replace(each, more_k=(each.k,)) if isinstance(each, TileGroup) else each for each in schedule.steps]
    assert schedule_hash(scenario, replace(schedule, steps=tuple(sliced))) != same


def test_schedules_that_differ_have_hashes_that_differ() -> None:
    for body in BODIES:
        scenario = scenario_of(body)
        hashes = {plan_of(scenario, each): schedule_hash(scenario, each) for each in all_schedules(body)}

        assert len(set(hashes.values())) == len(hashes)


def test_a_hash_is_the_same_in_every_process() -> None:
    code = (
        "from tests.helpers.plans.plans import all_schedules, scenario_of;"
        "from tests.helpers.plans.documents import schedule_hash;"
        "print(schedule_hash(scenario_of('send_recv'), all_schedules('send_recv')[0]))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip

    assert hashes == {schedule_hash(scenario_of("send_recv"), all_schedules("send_recv")[0])}


def test_a_document_says_what_it_fits_and_a_step_a_line() -> None:
    scenario = scenario_of("send_recv")
    schedule = all_schedules("send_recv")[0]

    text = document_text(op_plan_document(scenario, schedule))

    head = json.loads(text)
    assert head["schema"] == SCHEMA and head["expression"] == schedule.expression
    moved = {"rows": 512, "cols": 1024, "dtype": "bf16"}
    assert head["scenario"] == {"ranks": 4, "ops": [{"name": "y", "pattern": "send_recv", "moved": moved}]}
    assert head["parts"] == [{"name": "y", "op": "y", "plan": 0, "behind_kernels": True}]
    steps_written = sum(len(steps) for steps in head["plans"][0]["ranks"])
    assert sum('"name"' in line for line in text.splitlines()) == steps_written + 2 > 2


@pytest.mark.slow
def test_text_and_json_are_the_same_plan() -> None:
    from magus.compiler.planfile.write import plan_text

    for body in ("AG+GEMM", "all_reduce", "broadcast"):
        for schedule in some(all_schedules(body)):
            again = compile_text(text_of(body) + plan_text(scenario_of(body), schedule, "written")).scenario().case
            assert replace(declared(again, again.schedules[0]), expression=schedule.expression) == schedule
