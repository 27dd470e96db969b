"""Plans of every origin, carried out with real data: each rank ends with what the serial computation gives."""

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_file, compile_text
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, OpPlan, Pattern
from magus.compiler.planning.build import build_op_plan, declared, reject_choice
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.templates import ALL_TEMPLATES
from magus.examples import NAMES, PAPERS, TEMPLATES, path
from magus.runtime import RunRefused, carry_out
from magus.runtime.run import job_of_op
from tests.helpers.marks import examples, thinned
from tests.helpers.mscclpp.reading import PROGRAMS, schedule_of
from tests.helpers.paths import DOCS
from tests.helpers.plans.plans import BODIES, all_schedules
from tests.helpers.plans.plans import scenario_of as scenario_of_body
from tests.helpers.scenarios.compiled import cases_in
from tests.helpers.scenarios.drawn import SYSTEMS, TEXTS, draw_choices, draw_scenario
from tests.helpers.scenarios.drawn import scenario_of as scenario_of_pattern
from tests.helpers.scenarios.drawn_plans import draw_bespoke, draw_uneven
from tests.helpers.scenarios.loads import KINDS, drawn, legal_choices
from tests.helpers.scenarios.loads import scenario_of as scenario_of_loads
from tests.helpers.scenarios.rank_parts import KINDS as PARTS
from tests.helpers.scenarios.rank_parts import scenario_of as scenario_of_parts
from tests.helpers.scenarios.workloads import choices_of, workload_of
from tests.helpers.some import some

CARRIED = [body for body in BODIES if body != "kernel"]
"""Workloads that are carried out."""


def check(scenario: OpCase, schedule: OpPlan, seeds: int = 2) -> None:
    report = carry_out(*job_of_op(scenario, schedule), range(seeds))

    assert report.exact, (schedule.expression, report.runs[-1])
    assert len(report.runs) == seeds


@pytest.mark.quick(3)
@pytest.mark.parametrize("body", thinned(CARRIED, 2))
def test_every_template(body: str) -> None:
    chosen = {schedule.expression.partition("(")[0]: schedule for schedule in all_schedules(body)}
    for schedule in some(chosen.values()):
        check(scenario_of_body(body), schedule)


@pytest.mark.slow
@pytest.mark.parametrize("body", CARRIED)
def test_every_template_by_put_and_get_by_engines_and_by_sms(body: str) -> None:
    for schedule in some(all_schedules(body)):
        check(scenario_of_body(body), schedule, 4)


@pytest.mark.parametrize("seed", thinned(range(40), 10))
def test_drawn_schedules_of_drawn_scenarios(seed: int) -> None:
    rng = random.Random(seed)
    pattern = rng.choice([pattern for pattern in TEXTS if pattern is not Pattern.KERNEL])
    scenario = draw_scenario(rng, pattern)
    for choice in some(draw_choices(rng, scenario, 2)):
        check(scenario, build_op_plan(scenario, choice))


@pytest.mark.parametrize("seed", thinned(range(40), 10))
def test_bespoke_schedules_with_parts_slices_and_columns(seed: int) -> None:
    rng = random.Random(seed)
    scenario = draw_uneven(rng, SYSTEMS[1], rng.choice((2, 4)))
    made = (draw_bespoke(rng, scenario) for _ in range(20))
    check(scenario, next(schedule for schedule in made if schedule is not None))


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_send_differently(kind: str) -> None:
    scenario = scenario_of_loads(kind, drawn(random.Random(1)))
    for choice in some(islice(legal_choices(scenario), 4)):
        check(scenario, build_op_plan(scenario, choice))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["GEMM+A2A", "grouped_gemm+A2A"])
def test_rows_of_any_number_for_each_rank(name: str) -> None:
    scenario = workload_of(name, 4, 32, 4)
    for choice in some(choices_of(scenario, (1, 2, 4))):
        check(scenario, build_op_plan(scenario, choice), 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_execution_plans_of_mscclpp(name: str) -> None:
    check(*schedule_of(PROGRAMS[name](4)))


@pytest.mark.parametrize(
    "expression",
    [
        "bespoke(parts=[[256, 128], [0, 128]], slices=[[], [512, 512]], engine=dma(3), streams=2, lanes=3)",
        "bespoke(parts=[[256, 256]], columns=[[256, 256]], engine=dma(3))",
        "uniform_fused_1d(chunks=16, engine=dma(3), transfer=get, depth=2)",
        "pipelined(chunks=16, engine=dma(3), streams=2, waves=3)",
        "pipelined(chunks=16, engine=dma(3), algorithm=halving_doubling)",
        "hetero_fused_1d(chunks=16, engine=dma(3), kernel=persistent, wait=poll)",
        "shard_p2p(engine=sm(8), order=absolute)",
    ],
)
def test_what_schedules_can_say(expression: str) -> None:
    scenario = scenario_of_pattern(Pattern.AG_GEMM, SYSTEMS[1], 4, 1024, 2048, 1024)

    check(scenario, resolve_schedule(scenario, expression))


TILES = "engine=sm(tiles), kernel=persistent, wait=poll)"


@pytest.mark.parametrize("template", ["hetero_fused_1d(chunks=8, ", "pipelined(chunks=8, algorithm=nvls, ", "bespoke("])
@pytest.mark.parametrize("pattern", [Pattern.GEMM_RS, Pattern.GEMM_AR])
def test_stores_from_tiles(template: str, pattern: Pattern) -> None:
    scenario = scenario_of_pattern(pattern, SYSTEMS[0], 4, 512, 512, 512)

    check(scenario, resolve_schedule(scenario, template + TILES))


@pytest.mark.parametrize("template", ["hetero_fused_1d(chunks=8, ", "bespoke("])
@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.A2A_GEMM])
def test_pulls_of_tiles(template: str, pattern: Pattern) -> None:
    scenario = scenario_of_pattern(pattern, SYSTEMS[0], 4, 512, 512, 512)

    check(scenario, resolve_schedule(scenario, f"{template}transfer=get, {TILES}"))


def test_tiles_that_add_where_their_sums_land() -> None:
    text = """use "nvidia/h100"
    system s { gpus 3 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on s {
      x = tensor bf16[384, 192] shard cols
      w = tensor bf16[192, 256] shard rows
      p = gemm(x, w)
      y = reduce_scatter(p)
    }
    schedule own_last for w {
      plan by sm(tiles) kernel persistent
      theirs = compute p.shard(1), p.shard(2)
      own = compute p.shard(0)
      t1 = put p.shard(1) to 1 signal s1 after theirs reduce
      t2 = put p.shard(2) to 2 signal s2 after theirs reduce
    }
    """
    scenario = compile_text(text).scenario().case

    check(scenario, declared(scenario, scenario.schedules[0]), 4)


def test_plans_of_the_documentation() -> None:
    head = 'use "nvidia/h100"\nsystem quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
    body = "workload g on quad { x = tensor bf16[4096, 4096] shard rows; xg = all_gather(x) }\n"
    scenario = compile_text(head + body).scenario().case
    for name in ("direct", "mscclpp"):
        check(scenario, resolve_schedule(scenario, str(DOCS / "plans" / f"{name}.json")))


GRAPHS_ALONE = ("papers/layers", "papers/trace")
PAIRS = [name for name in (*NAMES, *TEMPLATES, *PAPERS) if name not in GRAPHS_ALONE]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", thinned(PAIRS, 4))
def test_schedules_of_the_examples(name: str) -> None:
    for scenario in some(cases_in(compile_file(path(name)))):
        every = [declared(scenario, named) for named in scenario.schedules]
        for schedule in some(every or [resolve_schedule(scenario, None)]):
            try:
                report = carry_out(*job_of_op(scenario, schedule), range(1))
            except RunRefused as error:
                assert error.rejection.code.name == "MGS540"
                assert scenario.shape.pattern is Pattern.KERNEL or "steps over all ranks" in error.rejection.message
            else:
                assert report.exact, (schedule.expression, report.runs[-1])


def test_all_rows_and_columns_where_they_are_few() -> None:
    scenario = scenario_of_pattern(Pattern.AG_GEMM, SYSTEMS[1], 2, 8, 16, 64)
    schedule = resolve_schedule(scenario, "uniform_fused_1d(chunks=4, engine=dma(1))")

    assert carry_out(*job_of_op(scenario, schedule), range(2), detail=None).exact


def choices_of_parts(scenario: OpCase) -> list[OpChoice]:
    n, engines = scenario.num_ranks, (EngineChoice(EngineKind.DMA, 2), EngineChoice(EngineKind.SM, 4))
    choices = (
        OpChoice(template.name, n * (2 if template.cuts_shards else 1), engine, template.default_streams)
        for template in ALL_TEMPLATES
        for engine in engines
    )
    return [choice for choice in choices if reject_choice(scenario, choice) is None]


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize(("rows", "cols", "ranks"), [(3, 512, 4), (4, 50, 3)])
def test_rows_that_do_not_divide_among_the_ranks(kind: str, rows: int, cols: int, ranks: int) -> None:
    scenario = scenario_of_parts(kind, rows, cols, ranks)

    for choice in some(choices_of_parts(scenario)):
        check(scenario, build_op_plan(scenario, choice), 1)


@examples(20)
@given(st.integers(1, 30), st.integers(7, 200), st.integers(2, 7), st.sampled_from(PARTS))
def test_any_number_of_rows(rows: int, cols: int, ranks: int, kind: str) -> None:
    scenario = scenario_of_parts(kind, rows, cols, ranks)

    check(scenario, build_op_plan(scenario, OpChoice("serial", ranks, EngineChoice(EngineKind.SM, 4))), 1)
