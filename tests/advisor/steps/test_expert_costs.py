"""What a framework adds to a layer of experts: passes between its products, and products of their own."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.advisor.steps.layer_times import LayerTimes, expert_bytes_of, for_seconds
from magus.advisor.steps.times import ticks_of
from magus.compiler import compile_text
from magus.compiler.ir import TICKS_PER_SECOND, DType, GemmShape, GroupedGemmShape, Implementation, Stack
from magus.compiler.ir.step import StepScenario, StepSchedule
from magus.compiler.text.diagnostics import CompileError
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.kernels.grouped_gemm import grouped_gemm_work
from magus.simcore.steps.step import LayerTicks

EXPERTS = """use "nvidia/h100"
system node {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 4; mesh ep 4, edp 1 over dp }}
workload moe on node.ep {{
  x   = tensor bf16[4 * 1024, 1024] shard rows
  wup = tensor bf16[4 * 1024, {width}] shard rows
  wdn = tensor bf16[4 * 2048, 1024] shard rows
  u = grouped_gemm(dispatch(x, experts=4, top=2, routing=stride), wup)
  y = combine(grouped_gemm({act}(u), wdn))
  repeat 1 y as x
}}
workload train on node {{ step moe; sequences 4 x 1024 }}
{more}
"""
INNER_BYTES = 2 * 1024 * 2048 * 2
"""Two experts for each of 1024 rows of a rank, 2048 columns in 16 bits."""


def step_of(act: str = "gelu", width: int = 2048, more: str = "") -> StepScenario:
    step = compile_text(EXPERTS.format(act=act, width=width, more=more)).step()
    assert step is not None
    return step


def layer_of(step: StepScenario, stack: Stack, times: LayerTimes) -> LayerTicks:
    schedule = StepSchedule("", zero=0, stack=Implementation("mine", (), (), (), stack=stack))
    (layer,) = ticks_of(step, schedule, times, [0]).layers
    return layer


@pytest.mark.parametrize(("act", "width"), [("gelu", 2048), ("swiglu", 4096)])
def test_passes_between_products_are_as_wide_as_what_the_second_takes(act: str, width: int) -> None:
    step, times = step_of(act, width), LayerTimes()
    (part,) = step.step.blocks[0].parts
    assert expert_bytes_of(part.forward) == INNER_BYTES
    bare = layer_of(step, Stack(), times)
    costs = layer_of(step, Stack(forward_experts=Fraction(3), backward_experts=Fraction(5)), times)
    each = INNER_BYTES * TICKS_PER_SECOND / step.system.gpu.hbm.achieved_bytes_per_s
    assert costs.forward - bare.forward == pytest.approx(3 * each, rel=1e-6)
    assert costs.inputs + costs.weights - bare.inputs - bare.weights == pytest.approx(5 * each, rel=1e-6)


def test_a_layer_without_experts_has_no_bytes_of_them() -> None:
    text = """use "nvidia/h100"
    system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
    workload w on node {
      x = tensor bf16[4096, 1024] shard rows
      w = tensor bf16[1024, 4096] shard cols
      v = tensor bf16[4096, 1024] shard rows
      y = reduce_scatter(gemm(gelu(gemm(all_gather(x), w)), v))
    }"""
    assert expert_bytes_of(compile_text(text).scenario()) == 0


def test_plain_products_of_experts_have_the_constants_of_gemms() -> None:
    step = step_of()
    rows = GroupedGemmShape((2048,), 2048, 1024, DType.BF16)
    plain = for_seconds(step.system, Stack(plain_experts=True)).gpu
    grouped = for_seconds(step.system, None).gpu
    assert grouped.grouped is not None and plain.grouped is None
    same = gemm_work(plain, GemmShape(2048, 2048, 1024, DType.BF16), plain.sms)
    assert grouped_gemm_work(plain, rows, plain.sms).alone_ticks == same.alone_ticks


@pytest.mark.parametrize("experts", [1, 4])
def test_products_of_experts_run_at_the_clock_that_a_step_holds(experts: int) -> None:
    """However few operations they are, as plain ones do; beside a step they have the clock of their tables."""
    for stack in (Stack(), Stack(plain_experts=True)):
        system = for_seconds(step_of().system, stack)
        gpu, held = system.gpu, system.gpu.sustained
        assert held is not None
        shape = GroupedGemmShape((8192 // experts,) * experts, 4096, 4096, DType.BF16)
        burst = grouped_gemm_work(replace(gpu, sustained=None), shape, gpu.sms).alone_ticks
        slow = grouped_gemm_work(gpu, shape, gpu.sms).alone_ticks
        assert burst < slow <= burst / held.clock
        assert slow > 0.9 * burst / held.clock  # all but start and rows, which are moved at the rate of memory
        late = replace(gpu, sustained=replace(held, after_ticks=10**9))
        assert grouped_gemm_work(late, shape, gpu.sms).alone_ticks == burst


def test_the_stack_of_megatrons_test_is_read() -> None:
    step = step_of(more="schedule theirs for train { zero 0; stack megatron_unfused }")
    costs = step.schedules[0].costs
    assert costs is not None and costs.plain_experts
    assert (float(costs.forward_experts), float(costs.backward_experts)) == (6, 15)


def test_a_child_says_anew_how_experts_are_computed() -> None:
    text = """implementation ours { stack { plain_experts yes; forward_experts 2 @assumed } }
implementation same extends ours { stack { forward_rows 1 @assumed } }
implementation other extends ours { stack { plain_experts no } }
""" + "".join(f"schedule by_{name} for train {{ stack {name} }}\n" for name in ("ours", "same", "other"))
    found = [schedule.costs for schedule in step_of(more=text).schedules]
    assert [None if each is None else each.plain_experts for each in found] == [True, True, False]


@pytest.mark.parametrize(("said", "code"), [("plain_experts maybe", "MGS116"), ("forward_experts -1", "MGS307")])
def test_what_is_wrong_with_costs_of_experts_is_said(said: str, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        step_of(more=f'implementation ours {{ stack {{ source derived "its kernels"; {said} }} }}')
    assert code in {each.code.name for each in caught.value.diagnostics}
