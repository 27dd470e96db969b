"""Measured training steps: which rows are compared, how they are written, and what a stack adds."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from magus.advisor.measured.tables.steps import (
    StepComparison,
    StepRow,
    in_order,
    pairs_of,
    scenario_of,
    step_comparisons,
    step_rows,
    text_of_step,
)
from magus.advisor.measured.validate import step_report
from magus.advisor.measured.validate.report import Validation, validation_document
from magus.advisor.measured.validate.text import validation_page, validation_text
from magus.advisor.steps.answer import marks_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import DType, Stack

HEAD = (
    "source,name,model,gpu,n_gpus,tp,pp,vpp,cp,ep,dp,micro_batch,global_batch,seq,dtype,step_s,tokens_per_s_per_gpu,"
    "tflops_per_gpu,recompute,sharding,overlap,assumed"
)
SMALL = {
    "source": "arXiv:2205.05198 table 5",
    "name": "small",
    "model": "h1024 L4 a8 ffn4096 kv8 V8192",
    "gpu": "A100",
    "n_gpus": "8",
    "tp": "2",
    "pp": "2",
    "vpp": "1",
    "cp": "1",
    "ep": "",
    "dp": "2",
    "micro_batch": "1",
    "global_batch": "8",
    "seq": "1024",
    "dtype": "fp16",
    "step_s": "0.05",
    "tokens_per_s_per_gpu": "",
    "tflops_per_gpu": "",
    "recompute": "sel",
    "sharding": "ddp",
    "overlap": "none",
    "assumed": "",
}


def read(folder: Path, **changed: str) -> list[StepRow | str]:
    row = {**SMALL, **changed}
    line = ",".join(f'"{row[name]}"' for name in HEAD.split(","))
    (folder / "training_steps.csv").write_text(f"{HEAD}\n{line}\n")
    return list(step_rows(folder))


def small(folder: Path, **changed: str) -> StepRow:
    (row,) = read(folder, **changed)
    assert isinstance(row, StepRow), row
    return row


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gpu": "TPUv4"}, "small: the GPU 'TPUv4' or the network between its nodes is not known"),
        ({"model": "llama"}, "small: the model 'llama' has no sizes"),
        ({"n_gpus": "16"}, "small: tp, cp, pp and dp do not multiply to 16 GPUs"),
        ({"micro_batch": "3"}, "small: 8 sequences are no whole number of microbatches"),
        ({"dtype": "nvfp4"}, "a step in nvfp4: products are in 16 bits, or in fp8"),
        ({"recompute": ""}, "a step that does not say what is made again"),
        ({"tokens_per_s_per_gpu": "20.48"}, "small: tokens/s and seconds are of different steps, or in other units"),
        ({"step_s": "0.0001"}, "small: 0.0001 s are less than the products take at the peak of A100"),
        ({"step_s": "0"}, "step_s is '0', not a number above zero"),
        ({"seq": "1000.5"}, "small: a number of GPUs, sequences or tokens is not whole"),
    ],
)
def test_a_bad_row_is_left_out_with_its_reason(tmp_path: Path, changed: dict[str, str], reason: str) -> None:
    (found,) = read(tmp_path, **changed)
    assert isinstance(found, str) and reason in found


def test_rows_that_hide_a_knob_do_not_count(tmp_path: Path) -> None:
    assert small(tmp_path).use == "held out"
    assert small(tmp_path, assumed="; vpp unknown").use == "assumed"
    assert small(tmp_path, assumed="500 W, HBM2e").use == "held out"


def test_a_row_is_a_step_as_it_says(tmp_path: Path) -> None:
    scenario = scenario_of(small(tmp_path, recompute="full"))
    (schedule,) = scenario.schedules
    assert (scenario.system.num_ranks, scenario.num_stages, scenario.step.microbatches) == (8, 2, 4)
    assert (schedule.keep, schedule.zero, schedule.overlapped) == ("least", 0, ())
    assert schedule.stack is not None and schedule.stack.name == "megatron_2022"
    assert "all_reduce(gemm(a, wo))" in text_of_step(small(tmp_path, recompute="full"))
    assert "reduce_scatter(gemm(a, wo))" in text_of_step(small(tmp_path))
    narrow = scenario_of(small(tmp_path, gpu="H100", dtype="fp8", source="other")).step.blocks[0].parts[0]
    for workload in (narrow.forward.workload, narrow.back("qkv, r, u").workload):
        products = [op.shape.gemm for op in workload.ops if op.shape.gemm is not None]
        assert {(each.dtype, each.product) for each in products} == {(DType.FP8, DType.BF16)}
    shared = scenario_of(small(tmp_path, cp="2", dp="1"))
    assert (shared.in_context, shared.step.microbatches, shared.system.num_ranks) == (True, 8, 8)


def test_each_cost_of_a_stack_is_in_the_step(tmp_path: Path) -> None:
    """A pass over memory is bytes over its rate, in each layer and microbatch that a stage computes."""
    scenario, times = scenario_of(small(tmp_path, pp="1", dp="4")), LayerTimes()
    bare = replace(scenario.schedules[0], stack=None)
    framework = scenario.schedules[0].stack
    assert framework is not None

    def seconds(stack: Stack) -> float:
        return outcome_of(scenario, replace(bare, stack=replace(framework, stack=stack)), times).seconds

    without, rate = outcome_of(scenario, bare, times).seconds, scenario.system.gpu.hbm.achieved_bytes_per_s
    assert seconds(Stack()) == without
    of_rows = 4 * 2 * (1024 // 2 * 1024 * 2) / rate
    assert seconds(Stack(forward_rows=Fraction(3))) - without == pytest.approx(3 * of_rows, rel=1e-6)
    assert seconds(Stack(backward_rows=Fraction(5))) - without == pytest.approx(5 * of_rows, rel=1e-6)
    scores = 4 * 2 * (8 // 2 * 1024 * 1024 * 2) / rate
    more = seconds(Stack(backward_scores=Fraction(4))) - seconds(Stack(backward_scores=Fraction(2)))
    assert more == pytest.approx(2 * scores, rel=1e-6)
    again = seconds(Stack(forward_scores=Fraction(4))) - seconds(Stack(forward_scores=Fraction(2)))
    assert again == pytest.approx(4 * scores, rel=1e-6)  # attention is made again in the backward pass
    assert 1.2 * without < seconds(Stack(products=Fraction(1, 2))) < 2 * without  # what is no GEMM stays as it is


def test_a_pipeline_waits_for_its_sends(tmp_path: Path) -> None:
    scenario, times = scenario_of(small(tmp_path)), LayerTimes()
    schedule = scenario.schedules[0]
    assert schedule.stack is not None and schedule.costs is not None
    still = replace(schedule, stack=replace(schedule.stack, stack=replace(schedule.costs, sends=Fraction(0))))
    assert outcome_of(scenario, schedule, times).seconds > outcome_of(scenario, still, times).seconds


def test_a_mark_says_what_was_compared(tmp_path: Path) -> None:
    scenario = scenario_of(small(tmp_path))
    (mark,) = marks_of(scenario, scenario.schedules[0])
    assert "1.7% off on average: 8 rows of arXiv 2205.05198, table 5" in mark
    (mark,) = marks_of(scenario, replace(scenario.schedules[0], stack=None))
    assert "no stack" in mark


@pytest.mark.parametrize(
    ("stack", "message"),
    [("megatron_2020", "unknown stack 'megatron_2020'"), ("torchtitan", "torchtitan is known on H100, not on A100")],
)
def test_a_stack_that_is_not_known_is_refused(tmp_path: Path, stack: str, message: str) -> None:
    text = text_of_step(small(tmp_path)).replace("stack megatron_2022", f"stack {stack}")
    with pytest.raises(CompileError, match=message):
        compile_text(text, "small.mgs").step("train")


def comparisons(folder: Path, *seconds: str) -> list[StepComparison]:
    rows = [small(folder, name=f"row {each}", step_s=each) for each in seconds]
    return [each for each in step_comparisons(rows, lambda: None) if isinstance(each, StepComparison)]


def test_pairs_are_ordered_as_they_are_simulated(tmp_path: Path) -> None:
    one, other, near = comparisons(tmp_path, "0.05", "0.04", "0.041")
    assert list(pairs_of([other, near])) == []
    ((first, second),) = pairs_of([one, other])
    assert not in_order(first, second)  # both are the same step, and simulated as one
    slower = replace(one, outcome=comparisons(tmp_path, "0.05")[0].outcome)
    assert not in_order(slower, other)


def test_the_report_shows_rows_figures_and_targets(tmp_path: Path) -> None:
    rows = tuple(comparisons(tmp_path, "0.05"))
    found = Validation((), (), (), 0, steps=rows)
    document = validation_document(found)["steps"]
    assert isinstance(document, dict) and document["rows"][0]["measured_s"] == 0.05
    names = [target.name for target in step_report.targets_of(rows)]
    assert names == ["A100 steps, mean of 1", "A100 steps, worst"]
    assert "row 0.05, 8 x A100 tp2 dp2 pp2" in validation_page(found)
    assert all(len(line) <= 80 for line in validation_text(found).splitlines())
