"""Every template, written out as a plan and compiled again, is the same plan."""

from dataclasses import replace
from itertools import product

import pytest

from magus.compiler import compile_text, format_text
from magus.compiler.plan import build_schedule, declared, default_engine, why_illegal
from magus.compiler.plan_text import plan_text
from magus.compiler.schedule import Choice, Direction, EngineChoice, EngineKind, Tactics
from magus.compiler.templates import ALL_TEMPLATES, TEMPLATES

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


@pytest.mark.parametrize("workload", [AG, RS], ids=["AG+GEMM", "GEMM+RS"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_written_out_is_the_same_plan(workload: str, template) -> None:  # type: ignore[no-untyped-def]
    scenario = compile_text(HEAD + workload).scenario()
    for chunks in (4, 8, 16):
        choice = Choice(template.name, chunks, default_engine(scenario), template.default_streams)
        if why_illegal(scenario, choice) is not None:
            continue
        schedule = build_schedule(scenario, choice)

        text = HEAD + workload + plan_text(scenario, schedule, "written")
        again = compile_text(text).scenario()
        written = declared(again, again.schedules[0])

        assert written.steps == schedule.steps
        assert written.engine == schedule.engine
        assert format_text(format_text(text)) == format_text(text)


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("engine", [EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8)], ids=str)
def test_so_is_every_template_of_the_other_patterns(body: str, engine: EngineChoice) -> None:
    head = HEAD + f"workload w on quad {{ {body} }}\n"
    scenario, written = compile_text(head).scenario(), 0
    for template in ALL_TEMPLATES:
        for chunks, direction in product((4, 8, 16), Direction):
            choice = Choice(template.name, chunks, engine, template.default_streams, Tactics(direction))
            if why_illegal(scenario, choice) is not None:
                continue
            schedule = build_schedule(scenario, choice)
            if schedule.by_rank:
                continue
            again = compile_text(head + plan_text(scenario, schedule, "written")).scenario()
            assert declared(again, again.schedules[0]).steps == schedule.steps
            written += 1
    assert written


def test_a_plan_with_a_part_for_each_rank_says_that_it_is_not_all() -> None:
    scenario = compile_text(HEAD + f"workload w on quad {{ {OTHERS['all_reduce']} }}\n").scenario()
    schedule = build_schedule(scenario, Choice("double_tree", 4, default_engine(scenario)))

    text = plan_text(scenario, schedule, "written")

    assert schedule.by_rank and "# Ranks have different parts here" in text
    same = replace(schedule, by_rank=())
    assert plan_text(scenario, same, "written") == "\n".join(line for line in text.split("\n") if "#" not in line)
