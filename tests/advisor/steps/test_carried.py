"""A step carried out on all ranks of its mesh: its weights are those of the serial step, and faults are found."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.harness.joint_step import step_of
from magus.advisor.steps.carried import job_of
from magus.advisor.steps.times import held_by
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import DType, GroupedGemmShape, Pattern
from magus.compiler.ir.step import (
    KEEP_LEAST,
    ChunkPass,
    Overlapped,
    PassKind,
    Pipeline,
    PipelineKind,
    StepSchedule,
)
from magus.runtime import Outcome, RunRefused
from magus.runtime.operands import MODULUS
from magus.runtime.problem import of_experts
from magus.runtime.steps.build import StageBuilder
from magus.runtime.steps.run import CarriedStep, carry_out_step
from magus.runtime.steps.serial import SerialStep, updated
from magus.runtime.steps.work import StepWork
from tests.helpers.marks import first
from tests.helpers.steps import ended

BESIDE = (Overlapped.GRADIENTS, Overlapped.WEIGHTS)
INTERLEAVED = Pipeline(PipelineKind.INTERLEAVED, 2)
DUAL = Pipeline(PipelineKind.DUAL)
ZERO_BUBBLE = Pipeline(PipelineKind.ZERO_BUBBLE)
AXES = (2, 2, 2)


def job(schedule: StepSchedule, axes: tuple[int, int, int] = AXES, layers: int = 2, microbatches: int = 2) -> StepWork:
    return job_of(step_of(*axes, layers=layers, microbatches=microbatches), schedule)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("schedule", "axes", "layers"),
    [
        (StepSchedule("", zero=0), AXES, 2),
        (StepSchedule("", zero=1), AXES, 2),
        (StepSchedule("", INTERLEAVED, zero=2, keep=KEEP_LEAST), AXES, 4),
        (StepSchedule("", zero=1, overlapped=BESIDE), AXES, 2),
        (StepSchedule("", ZERO_BUBBLE, zero=3, overlapped=BESIDE), AXES, 4),
        (StepSchedule("", zero=3), (4, 2, 1), 2),
        (StepSchedule("", zero=1), (1, 4, 2), 2),
        (StepSchedule("", stages=(1, 3)), (4, 1, 2), 4),
    ],
)
@pytest.mark.parametrize("seed", first([0, 1], 1))
def test_weights_are_those_of_the_serial_step(
    schedule: StepSchedule, axes: tuple[int, int, int], layers: int, seed: int
) -> None:
    of = job(schedule, axes, layers)
    assert of.num_ranks == 8
    assert ended(of, seed) == (Outcome.EXACT, "")


def test_the_serial_step_is_what_its_formulas_say() -> None:
    text = """use "nvidia/h100"
system pair { gpus 2 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 2 }
system one { gpus 1 x H100; fabric switch(nvswitch, link=nvlink); mesh tp 1 }
workload layer on one.tp { x = tensor bf16[64, 32]; w = tensor bf16[32, 32]; y = gemm(x, w); repeat 1 y as x }
workload train on one { step layer; sequences 3 x 64 }
"""
    step = compile_text(text).step()
    assert step is not None
    serial = SerialStep(job_of(step, StepSchedule("")), 0)
    w, inputs = serial.first(0, "w"), [serial.input(0, microbatch)[0] for microbatch in range(3)]
    gradient = sum(x.T @ (x @ w % MODULUS) for x in inputs) % MODULUS  # of half the sum of the squares of x w
    assert np.array_equal(serial.gradients[0, 0, 1]["w"], inputs[1].T @ (inputs[1] @ w % MODULUS) % MODULUS)
    assert np.array_equal(serial.weights[0]["w"], updated(w, np.asarray(gradient), serial.moments(0, "w")))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("zero", "axes", "beside"),
    [
        (0, AXES, ()),
        (3, AXES, BESIDE),
        (1, AXES, ()),
        (1, (2, 1, 4), ()),
        (0, AXES, BESIDE),
        (2, AXES, BESIDE),
        (1, (2, 1, 4), BESIDE),
        (3, AXES, ()),
        (3, (2, 1, 4), ()),
    ],
)
def test_weights_of_a_dual_pipeline_are_those_of_the_serial_step(
    zero: int, axes: tuple[int, int, int], beside: tuple[Overlapped, ...]
) -> None:
    """Each layer is on two stages, which sum its gradients: of microbatches from either end."""
    stages = axes[2]
    of = job(StepSchedule("", DUAL, zero=zero, overlapped=beside), axes, stages, 2 * stages)
    assert [of.mates(stage) for stage in (0, stages - 1)] == [(0, stages - 1)] * 2
    (kind,) = of.kinds
    assert len(of.holders(kind, kind.sets[0], 0)[0]) == (1 if zero == 3 else 2) * of.pipelines
    assert ended(of) == (Outcome.EXACT, "")


@pytest.mark.quick(1)
@pytest.mark.parametrize("zero", [3, 0])
def test_stages_of_a_dual_pipeline_that_do_not_sum_are_found(zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that gather weights apart sum what each has of their gradients in the end."""
    of = job(StepSchedule("", DUAL, zero=zero), (4, 1, 2), 2, 4)
    if zero == 3:
        monkeypatch.setattr(CarriedStep, "run_join", lambda *_: None)
    outcome, sentence = ended(of if zero == 3 else without_sums(of))
    assert outcome is Outcome.WRONG
    assert sentence.startswith("rank 0 (stage 0) has ")


def test_sums_beside_passes_wait_for_both_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that waits for the gradients of the first stage alone begins before those of the second are there."""
    sums = StageBuilder.sums

    def of_the_first(self: StageBuilder, mates: Sequence[StageBuilder]) -> None:
        sums(self, [self])
        for mate in mates:
            mate._summed = self._summed

    of = job(StepSchedule("", DUAL, zero=1, overlapped=BESIDE), AXES, 2, 4)
    monkeypatch.setattr(StageBuilder, "sums", of_the_first)
    assert any(ended(of, seed)[0] is not Outcome.EXACT for seed in range(4))


EXPERTS = """use "nvidia/h100"
system node { gpus 4 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 4; mesh ep 2, edp 2 over dp }
workload moe on node.ep {
  x   = tensor bf16[2048, 1024] shard rows
  w   = tensor bf16[1024, 1024]
  wup = tensor bf16[4 * 1024, 1024] shard rows
  wdn = tensor bf16[4 * 1024, 1024] shard rows
  r = add(x, gemm(norm(x), w))
  t = dispatch(norm(r), experts=4, top=2)
  u = grouped_gemm(t, wup)
  y = add(r, combine(grouped_gemm(gelu(u), wdn)))
  repeat 2 y as x
}
workload train on node { step moe; sequences 8 x 1024 }
"""


def of_experts_job(schedule: StepSchedule, text: str = EXPERTS) -> StepWork:
    step = compile_text(text).step()
    assert step is not None
    return job_of(step, schedule)


@pytest.mark.parametrize(
    "schedule",
    first(
        [
            StepSchedule("", zero=1, overlapped=BESIDE, keep=KEEP_LEAST),
            StepSchedule("", zero=0),
            StepSchedule("", zero=2),
            StepSchedule("", zero=3, overlapped=BESIDE),
        ],
        1,
    ),
)
def test_experts_and_weights_that_each_rank_has_are_those_of_the_serial_step(schedule: StepSchedule) -> None:
    """Two experts on each rank, whose weights two ranks have; those of w are the same on all four."""
    of = of_experts_job(schedule)
    (kind,) = of.kinds
    assert [(each.names, each.whole) for each in kind.sets] == [(("wup", "wdn"), False), (("w",), True)]
    assert [len(of.holders(kind, each, 0)[0]) for each in kind.sets] == [2, 4]
    assert ended(of) == (Outcome.EXACT, "")


def test_gradients_of_whole_weights_are_summed_behind_all_microbatches() -> None:
    """And not by the backward pass of each: w is on all ranks of the stage, and so is the sum."""
    step = compile_text(EXPERTS).step()
    assert step is not None
    (part,) = step.step.blocks[0].parts
    back = part.back("all").workload
    assert back.op("d_w").shape.pattern is Pattern.GEMM
    assert {name for name, op, _ in back.results if op == "d_w"} == {"d_w"}
    assert [(held.parameters, held.copies) for held in held_by(part)] == [
        (4 * 1024 * 1024, 2),
        (1024 * 1024, 4),
    ]


def test_whole_weights_that_no_stage_sums_are_found() -> None:
    outcome, sentence = ended(without_sums(of_experts_job(StepSchedule("", zero=0)), whole=True))
    assert outcome is Outcome.WRONG
    assert " of w of layer 0" in sentence


def test_products_of_experts_are_those_of_their_rows() -> None:
    """Forward, back to the rows, and back to the weights."""
    draw = np.random.default_rng(0)
    rows, weights, back = (draw.integers(-4, 5, size).astype(float) for size in ((6, 3), (2, 3, 5), (6, 5)))
    of = partial(GroupedGemmShape, dtype=DType.BF16)
    forward = of_experts(of((2, 4), 5, 3), rows, weights.reshape(6, 5))
    assert np.array_equal(forward, np.concatenate([rows[:2] @ weights[0], rows[2:] @ weights[1]]))
    turned = of_experts(of((2, 4), 3, 5), back, weights.reshape(6, 5).T)
    assert np.array_equal(turned, np.concatenate([back[:2] @ weights[0].T, back[2:] @ weights[1].T]))
    summed = of_experts(of((3, 3), 5, 3), rows.T, back)
    assert np.array_equal(summed, np.concatenate([rows[:3].T @ back[:3], rows[3:].T @ back[3:]]))


# Faults.


def with_order(of: StepWork, stage: int, order: tuple[ChunkPass, ...]) -> StepWork:
    orders = tuple(order if number == stage else each for number, each in enumerate(of.orders))
    return replace(of, orders=orders)


def swapped(of: StepWork, stage: int, work: PassKind) -> StepWork:
    """The first two passes of a kind change places."""
    order = list(of.orders[stage])
    first, second = (place for place, each in enumerate(order) if each.work is work and each.microbatch < 2)
    order[first], order[second] = order[second], order[first]
    return with_order(of, stage, tuple(order))


def test_a_gradient_that_is_dropped_is_named() -> None:
    of = job(StepSchedule("", ZERO_BUBBLE, zero=1))
    order = tuple(each for each in of.orders[1] if (each.work, each.microbatch) != (PassKind.WEIGHTS, 1))
    outcome, sentence = ended(with_order(of, 1, order))
    assert outcome is Outcome.WRONG
    assert "rank 4 (stage 1)" in sentence
    assert "of layer 1" in sentence
    assert "; microbatch 1 of pipeline 0 adds nothing to its gradient" in sentence


@pytest.mark.quick(1)
@pytest.mark.parametrize(("stage", "work"), [(0, PassKind.FORWARD), (1, PassKind.BACKWARD)])
def test_sends_that_are_swapped_are_found(stage: int, work: PassKind) -> None:
    of = job(StepSchedule("", zero=0))
    if work is PassKind.BACKWARD:  # both have what they need
        order = sorted(of.orders[stage], key=lambda each: each.work is PassKind.BACKWARD)
        of = with_order(of, stage, tuple(order))
    outcome, sentence = ended(swapped(of, stage, work))
    assert outcome is Outcome.WRONG
    assert "microbatch 0 of pipeline 0 adds another gradient than in the serial step" in sentence


@pytest.mark.parametrize(("zero", "seed", "why"), [(1, 0, "nothing has written yet"), (3, 1, "in no order")])
def test_a_pass_that_does_not_wait_for_its_weights_is_found(zero: int, seed: int, why: str) -> None:
    run = CarriedStep(job(StepSchedule("", zero=zero, overlapped=BESIDE)), seed)
    for task in run.tasks:
        if not task.moves:
            task.waits = tuple(mark for mark in task.waits if not mark[1].startswith("gather"))
    run.work()
    outcome, (sentence, *_) = run.found()
    assert outcome is Outcome.FAULT
    assert "of layer" in sentence
    assert why in sentence


def without_sums(of: StepWork, *, whole: bool = False) -> StepWork:
    (kind,) = of.kinds
    sets = tuple(replace(each, sums=None) if each.whole is whole else each for each in kind.sets)
    return replace(of, kinds=(replace(kind, sets=sets),))


def test_gradients_that_no_pipeline_sums_are_found() -> None:
    outcome, sentence = ended(without_sums(job(StepSchedule("", zero=0))))
    assert outcome is Outcome.WRONG
    assert sentence.startswith("rank 0 (stage 0) has ")


def test_orders_that_wait_for_each_other_are_named() -> None:
    of = job(StepSchedule("", zero=0))
    forward, backward = ([each for each in of.orders[0] if each.work is work] for work in list(PassKind)[:2])
    first = tuple(each for pair in zip(forward, backward, strict=True) for each in pair)
    late = tuple(sorted(of.orders[1], key=lambda each: each.work is PassKind.BACKWARD))
    outcome, sentence = ended(with_order(with_order(of, 0, first), 1, late))
    assert outcome is Outcome.DEADLOCK
    assert " waits for " in sentence


def test_a_backward_pass_before_its_forward_one_is_found() -> None:
    of = job(StepSchedule("", zero=0))
    order = of.orders[1]
    outcome, sentence = ended(with_order(of, 1, (order[1], order[0], *order[2:])))
    assert outcome is Outcome.FAULT
    assert "stage 1 of pipeline" in sentence
    assert "microbatch 0" in sentence


# What is not carried out.


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(RunRefused, match="steps of plans") as refused:
        carry_out_step(replace(job(StepSchedule("")), parts=((0, 0),) * 8000, layers=(range(4000), range(4000, 8000))))
    assert refused.value.rejection.code is Code.MGS540


def test_a_backward_pass_that_is_written_out_is_carried_out() -> None:
    text = """use "nvidia/h100"
system one { gpus 1 x H100; fabric switch(nvswitch, link=nvlink); mesh tp 1 }
workload layer on one.tp { x = tensor bf16[64, 32]; w = tensor bf16[32, 32]; y = gemm(x, w); repeat 1 y as x }
workload back on one.tp {
  d_y = tensor bf16[64, 32]
  x = tensor bf16[64, 32]
  w = tensor bf16[32, 32]
  d_w = gemm(x.t, d_y)
  d_x = gemm(d_y, w.t)
  repeat 1 d_x as d_y
}
workload train on one { step layer, back; sequences 2 x 64 }
"""
    step = compile_text(text).step()
    assert step is not None
    assert ended(job_of(step, StepSchedule(""))) == (Outcome.EXACT, "")


def test_a_step_that_is_too_large_is_made_smaller_and_says_so() -> None:
    of = job(StepSchedule("", zero=1), layers=40, microbatches=500)
    assert of.num_layers == 4
    assert of.microbatches == 4
    assert {"4 of 40 layers", "4 of 500 microbatches", "all sizes of its layers are divided by 512"} <= set(of.notes)
