"""Every template, written out as a plan and compiled again, is the same plan."""

import re
from dataclasses import replace
from itertools import product

import pytest

from magus.compiler import compile_text, format_text
from magus.compiler.collectives import ALGORITHMS
from magus.compiler.ir import Direction, EngineChoice, EngineKind, ExecutionOptions, OpChoice, TileGroup
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan, declared, reject_choice
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.templates import ALL_TEMPLATES, TEMPLATES
from tests.helpers.marks import first, thinned
from tests.helpers.plans.plans import all_schedules, scenario_of, text_of
from tests.helpers.some import some

HEAD = 'use "amd/mi300x"\nsystem quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }\n'
AG = """workload up on quad {
  x = tensor bf16[512, 1024] shard rows
  w = tensor bf16[1024, 2048] shard cols
  xg = all_gather(x)
  y = gemm(xg, w)
}
"""
RS = """workload up on quad {
  h = tensor bf16[512, 1024] shard cols
  w = tensor bf16[1024, 2048] shard rows
  p = gemm(h, w)
  y = reduce_scatter(p)
}
"""


GEMM = "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 2048]; y = gemm(x, w)"
OTHERS = {
    "all_reduce": "x = tensor bf16[512, 1024]; y = all_reduce(x)",
    "reduce_scatter": "x = tensor bf16[512, 1024]; y = reduce_scatter(x)",
    "all_to_all": "x = tensor bf16[512, 1024]; y = all_to_all(x)",
    "uneven": "x = tensor bf16[512, 1024]; y = all_to_all(x, rows=[256, 128, 0, 128])",
    "GEMM+AR": "h = tensor bf16[512, 256] shard cols; w = tensor bf16[256, 64] shard rows; y = all_reduce(gemm(h, w))",
    "A2A+GEMM": "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 64]; y = gemm(all_to_all(x), w)",
    "uneven A2A+GEMM": (
        "x = tensor bf16[512, 1024]; w = tensor bf16[1024, 64]; y = gemm(all_to_all(x, rows=[192, 64, 192, 64]), w)"
    ),
    "GEMM || all_gather": f"{GEMM}; v = tensor bf16[512, 64] shard rows; g = all_gather(v)",
    "GEMM || all_to_all": f"v = tensor bf16[512, 64]; t = all_to_all(v); {GEMM}",
    "kernel": "x = tensor bf16[512, 1024]; y = tensor bf16[512, 1024]; z = add(x, y)",
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("workload", [AG, RS], ids=["AG+GEMM", "GEMM+RS"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_written_out_is_the_same_plan(workload: str, template) -> None:  # type: ignore[no-untyped-def]
    scenario = compile_text(HEAD + workload).scenario().case
    for chunks in (4, 8, 16):
        choice = OpChoice(template.name, chunks, default_engine(scenario.system), template.default_streams)
        if reject_choice(scenario, choice) is not None:
            continue
        schedule = build_op_plan(scenario, choice)

        text = HEAD + workload + plan_text(scenario, schedule, "written")
        again = compile_text(text).scenario().case
        written = declared(again, again.schedules[0])

        assert written.steps == schedule.steps
        assert written.engine == schedule.engine
        assert format_text(format_text(text)) == format_text(text)


@pytest.mark.quick(1)
@pytest.mark.parametrize("body", thinned(OTHERS.values(), 3), ids=OTHERS.keys())
@pytest.mark.parametrize("engine", first([EngineChoice(EngineKind.SM, 8), EngineChoice(EngineKind.DMA, 3)], 1), ids=str)
def test_so_is_every_template_of_the_other_patterns(body: str, engine: EngineChoice) -> None:
    head = HEAD + f"workload w on quad {{ {body} }}\n"
    scenario, written = compile_text(head).scenario().case, 0
    for template in ALL_TEMPLATES:
        for chunks, direction in product((4, 8, 16), Direction):
            choice = OpChoice(template.name, chunks, engine, template.default_streams, ExecutionOptions(direction))
            if reject_choice(scenario, choice) is not None:
                continue
            schedule = build_op_plan(scenario, choice)
            if schedule.by_rank:
                continue
            again = compile_text(head + plan_text(scenario, schedule, "written")).scenario().case
            assert declared(again, again.schedules[0]).steps == schedule.steps
            written += 1
    assert written


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "body", thinned(["send_recv", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "GEMM+AR"], 3)
)
def test_ranks_with_different_parts_have_a_block_each(body: str) -> None:
    scenario, written = scenario_of(body), 0
    for schedule in all_schedules(body):
        text = text_of(body) + plan_text(scenario, schedule, "written")
        again = compile_text(text).scenario().case
        assert replace(declared(again, again.schedules[0]), expression=schedule.expression) == schedule
        assert format_text(format_text(text)) == format_text(text)
        written += bool(schedule.by_rank)
    assert written or body not in ("all_reduce", "broadcast", "send_recv")


def test_a_rank_without_steps_has_an_empty_block() -> None:
    schedule = next(each for each in all_schedules("send_recv") if each.by_rank)

    text = plan_text(scenario_of("send_recv"), schedule, "written")

    assert re.findall(r"rank (\d) ({ })?", text) == [("0", ""), ("1", "{ }"), ("2", "{ }"), ("3", "{ }")]


def test_every_algorithm_whose_ranks_differ_is_written() -> None:
    engine = EngineChoice(EngineKind.SM, 8)
    pairs = [(kind.value, OpChoice(one.name, 8, engine)) for one in ALGORITHMS for kind in one.per_rank]
    for body, choice in some(pair for pair in pairs if reject_choice(scenario_of(pair[0]), pair[1]) is None):
        scenario = scenario_of(body)
        schedule = build_op_plan(scenario, choice)
        again = compile_text(text_of(body) + plan_text(scenario, schedule, "written")).scenario().case

        assert schedule.by_rank
        assert replace(declared(again, again.schedules[0]), expression=schedule.expression) == schedule


def test_a_lone_gemm_adds_up_slices_that_lie_apart() -> None:
    text = f"""{HEAD}workload up on quad {{ {GEMM} }}
schedule apart for up {{
  plan by dma(1)
  a = compute y.shard(0)[0:512, 0:2048] k 0:256, 512:768 stream 0
  b = compute y.shard(0)[0:512, 0:2048] k 256:512, 768:1024 after a stream 0 accumulate
}}
"""
    scenario = compile_text(text).scenario().case
    schedule = declared(scenario, scenario.schedules[0])

    assert [[str(each) for each in step.slices] for step in schedule.steps if isinstance(step, TileGroup)] == [
        ["0:256", "512:768"],
        ["256:512", "768:1024"],
    ]
    assert plan_text(scenario, schedule, "apart") in text


def test_kernels_that_keep_apart_from_copies_have_all_sms() -> None:
    scenario = scenario_of("AG+GEMM")
    apart, beside = (
        build_op_plan(scenario, OpChoice(name, chunks, EngineChoice(EngineKind.SM, 8), 1))
        for name, chunks in (("serial", 4), ("uniform_fused_1d", 8))
    )

    assert "plan by sm(8) alone\n" in plan_text(scenario, apart, "written")
    assert "plan by sm(8)\n" in plan_text(scenario, beside, "written")
    assert apart.compute_sms == beside.compute_sms + 8
