"""Copy engines where only the GPUs know how many rows go where: left out unasked, else charged and marked."""

import pytest

from magus.advisor.answer.extrapolation import outside_calibration, outside_of_plan
from magus.advisor.candidates.predicted import predicted_us, usual_serials
from magus.advisor.layers.op_runs import copiers_of
from magus.advisor.solver import enumerate_space
from magus.compiler import compile_text
from magus.compiler.ir import EngineKind, OpCase, OpPlan, Scenario
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.library import library_serial
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL, read_choice, resolve_schedule
from magus.simcore import simulate_op
from tests.helpers.some import some

HEAD = 'use "nvidia/h100"\nsystem hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
X, W = "x = tensor bf16[512, 1024]", "w = tensor bf16[2048, 512]"
PAIRS = {
    "dispatch": f"{X}; {W}; y = grouped_gemm(all_to_all(x), w, rows=[256, 256])",
    "combine": f"{X}; {W}; y = all_to_all(grouped_gemm(x, w, rows=[256, 256]))",
    "uneven": f"{X}; y = all_to_all(x, rows=[128, 192, 128, 64])",
    "hot": f"{X}; v = tensor bf16[1024, 512]; y = gemm(all_to_all(x, rows_to=[96, 96, 224, 96]), v)",
}
KNOWN = {
    "even": f"{X}; y = all_to_all(x)",
    "gathered": f"x = tensor bf16[512, 1024] shard rows; {W}; y = grouped_gemm(all_gather(x), w, rows=[256, 256])",
}
COUNTS_US = 1 + 3 + 2
"""An event, the setup of a copy and a launch of H100."""

LAYER = HEAD + (
    "workload moe on hgx { x = tensor bf16[256, 512] shard rows; w = tensor bf16[8 * 512, 256] shard rows\n"
    "  t = dispatch(norm(x), experts=8, top=2); z = combine(grouped_gemm(t, w)); y = gelu(z) }\n"
)


def requested(statements: str, explore: str = "") -> OpCase:
    return compile_text(f"{HEAD}workload w on hgx {{ {statements} }}\n{explore}").scenario().case


def layer(asking: str) -> Scenario:
    found = compile_text(LAYER + asking).scenario("moe")
    assert found is not None
    return found


def us(scenario: OpCase, schedule: OpPlan) -> float:
    return simulate_op(scenario, schedule, unit_bytes=1024).makespan_us


@pytest.mark.parametrize("name", PAIRS)
def test_copy_engines_are_left_out_unasked(name: str) -> None:
    scenario = requested(PAIRS[name])
    tried = {choice.engine.kind for choice in enumerate_space(scenario).structures}

    assert scenario.shape.counts_on_device
    assert tried == {EngineKind.SM}
    assert all(choice.engine.kind is EngineKind.SM for choice in some(usual_serials(scenario)))
    assert resolve_schedule(scenario, None).engine.kind is EngineKind.SM


@pytest.mark.parametrize("name", KNOWN)
def test_a_host_that_knows_the_counts_may_use_them(name: str) -> None:
    scenario = requested(KNOWN[name])
    serial = resolve_schedule(scenario, "serial(engine=dma(3))")

    assert not scenario.shape.counts_on_device
    assert EngineKind.DMA in {choice.engine.kind for choice in enumerate_space(scenario).structures}
    assert not any("counts" in each.label for each in simulate_op(scenario, serial, unit_bytes=1024).critical_path)


@pytest.mark.parametrize("name", PAIRS)
def test_requested_for_they_are_charged_and_marked(name: str) -> None:
    scenario = requested(PAIRS[name], "explore w { engine dma(3) }")
    assert {choice.engine.kind for choice in enumerate_space(scenario).structures} == {EngineKind.DMA}
    serial = resolve_schedule(scenario, "serial(engine=dma(3))")
    (mark,) = (each for each in outside_calibration(scenario, (serial,)) if "only the GPUs know" in each)

    assert f"{COUNTS_US}.0 us" in mark
    assert not any("only the GPUs" in each for each in outside_calibration(scenario, (by_sms(scenario),)))


@pytest.mark.parametrize("name", ["dispatch", "uneven"])
def test_the_first_copy_waits_for_the_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = requested(PAIRS[name])
    serial = resolve_schedule(scenario, "serial(engine=dma(3))")
    choice = read_choice(scenario, "serial(engine=dma(3))")
    charged, estimated = us(scenario, serial), predicted_us(scenario, (choice,), (serial,))[0]
    for module in ("magus.simcore.lower.collective", "magus.advisor.estimate.step_costs"):
        monkeypatch.setattr(f"{module}.counts_ticks", lambda scenario, schedule: 0)

    assert charged - us(scenario, serial) == pytest.approx(COUNTS_US, abs=0.01)
    assert estimated - predicted_us(scenario, (choice,), (serial,))[0] == pytest.approx(COUNTS_US, abs=0.01)


def test_counts_are_read_while_kernels_before_the_exchange_run(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = requested(PAIRS["combine"])
    serial = resolve_schedule(scenario, "serial(engine=dma(3))")
    charged = us(scenario, serial)
    monkeypatch.setattr("magus.simcore.lower.collective.counts_ticks", lambda scenario, schedule: 0)

    assert charged - us(scenario, serial) < COUNTS_US / 2


def test_a_layer_with_experts_copies_by_sms_unless_requested() -> None:
    graph = layer("")
    dma = layer("explore moe { engine dma(3) }\nschedule mine for moe { separate t, z by dma(3) }")

    assert [op.name for op in graph.workload.ops if op.shape.counts_on_device] == ["t", "z"]
    for few in (False, True):
        copiers = list(copiers_of(graph.system, graph.workload, graph.explore, few=few))
        assert all(copier.engine.kind is EngineKind.SM for copier in some(copiers))
    plan = build_plan(graph.system, graph.workload, SERIAL)
    assert all(part.schedule.engine.kind is EngineKind.SM for part in plan.parts if part.op in "tz")
    assert not any("only the GPUs" in each for each in outside_of_plan(graph.system, plan))
    assert [copier.engine.kind for copier in copiers_of(dma.system, dma.workload, dma.explore)] == [EngineKind.DMA]
    marks = outside_of_plan(dma.system, build_plan(dma.system, dma.workload, dma.schedules[0]))
    assert any("only the GPUs know" in each for each in marks)


@pytest.mark.parametrize("by", ["deepep", "deepep_low_latency"])
def test_copies_of_one_s_own_are_prepared_as_long_as_a_framework_s_exchange(by: str) -> None:
    """A row of a rank takes as long by either: what is sent is small, and the rest is charged to both."""
    text = (
        HEAD.replace("4 x", "8 x") + f"workload w on hgx {{ x = tensor fp8[8, 7168] shard rows\n"
        f"t = dispatch(x, experts=256, top=8, by={by}) }}"
    )
    found = compile_text(text).scenario("w")
    case = OpCase("t", found.system, found.workload.op("t").shape)
    choices = (library_serial(case), read_choice(case, "serial(engine=sm(16))"))
    library, own = (us(case, build_op_plan(case, choice)) for choice in choices)
    estimated = predicted_us(case, choices[1:], (build_op_plan(case, choices[1]),))[0]

    assert own == pytest.approx(library, abs=1.5)
    assert estimated == pytest.approx(own, rel=0.03)


def by_sms(scenario: OpCase) -> OpPlan:
    return resolve_schedule(scenario, "serial(engine=sm(16))")
