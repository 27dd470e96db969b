"""Every template, written out as a plan and compiled again, is the same plan."""

import pytest

from magus.compiler import compile_text, format_text
from magus.compiler.plan import build_schedule, declared, default_engine, why_illegal
from magus.compiler.plan_text import plan_text
from magus.compiler.schedule import Choice
from magus.compiler.templates import TEMPLATES

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
