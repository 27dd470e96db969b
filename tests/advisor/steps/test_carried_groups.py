"""Steps whose layers are of several workloads, each on groups of its own, carried out; and where their ranks lie."""

from dataclasses import replace

import pytest

from magus.advisor.steps.carried import job_of
from magus.advisor.steps.layer_times import LayerTimes
from magus.advisor.steps.outcome import outcome_of
from magus.advisor.steps.plans import flags_of
from magus.advisor.steps.ranks import StageRanks, ranks_of_stage
from magus.compiler import compile_text
from magus.compiler.ir import Pattern
from magus.compiler.ir.step import (
    KEEP_LEAST,
    ContextKind,
    Overlapped,
    Pipeline,
    PipelineKind,
    StepScenario,
    StepSchedule,
)
from magus.runtime import Outcome, RunRefused
from magus.runtime.steps.build import StageTask
from magus.runtime.steps.run import CarriedStep
from magus.runtime.steps.serial import SerialStep
from magus.runtime.steps.work import GroupWork, Values
from tests.helpers.marks import first
from tests.helpers.steps import ended

BESIDE = (Overlapped.GRADIENTS, Overlapped.WEIGHTS)
HEAD = """use "nvidia/h100"
system node {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh {mesh} }}
"""
KINDS = (
    HEAD.format(mesh="tp 2, dp 2, pp 2; mesh ep 4 over tp, dp")
    + """workload dense on node.tp {
  x = tensor bf16[2048, 1024] shard rows
  w = tensor bf16[1024, 2048] shard cols
  v = tensor bf16[2048, 1024] shard rows
  y = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(norm(x)), w)), v)))
  repeat 2 y as x
}
workload moe on node {
  x   = tensor bf16[2048, 1024] shard rows over tp
  w   = tensor bf16[1024, 2048] shard cols over tp
  v   = tensor bf16[2048, 1024] shard rows over tp
  wup = tensor bf16[4 * 1024, 1024] shard rows over ep
  wdn = tensor bf16[4 * 1024, 1024] shard rows over ep
  r = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(norm(x), over=tp), w)), v), over=tp))
  u = grouped_gemm(dispatch(norm(r), experts=4, top=2, over=ep), wup)
  y = add(r, combine(grouped_gemm(gelu(u), wdn), over=ep))
  repeat 2 y as x
}
workload train on node { step dense; step moe; sequences 16 x 1024 }
"""
)
"""Two layers of one workload, and two of another one, a part of which is on groups of ranks of two groups."""

FEW = KINDS.replace("sequences 16", "sequences 8")
"""The same with half as many microbatches: as many as the pipeline has stages."""

CONTEXT = (
    HEAD.format(mesh="cp 2, dp 2, pp 2; mesh ep 4 over cp, dp")
    + """workload moe on node.ep {
  x   = tensor bf16[4 * 1024, 1024] shard rows
  wq  = tensor bf16[1024, 1024]
  wk  = tensor bf16[1024, 512]
  wo  = tensor bf16[1024, 1024]
  wup = tensor bf16[8 * 1024, 1024] shard rows
  wdn = tensor bf16[8 * 1024, 1024] shard rows
  h = norm(x)
  a = attention(gemm(h, wq), gemm(h, wk), heads=8, kv_heads=2, causal=yes, over=cp)
  r = add(x, gemm(a, wo))
  u = grouped_gemm(dispatch(norm(r), experts=8, top=2), wup)
  y = add(r, combine(grouped_gemm(gelu(u), wdn)))
  repeat 2 y as x
}
workload train on node { step moe; sequences 8 x 2048 }
"""
)
"""Ranks that exchange rows of experts are of two sequences, each of which two of them share."""

WHOLE = (
    HEAD.format(mesh="tp 2, dp 2, pp 2")
    + """workload layer on node.tp {
  x = tensor bf16[4096, 4096]
  w = tensor bf16[4096, 16384] shard cols
  v = tensor bf16[16384, 4096] shard rows
  y = add(x, all_reduce(gemm(gelu(gemm(norm(x), w)), v)))
  repeat 2 y as x
}
workload train on node { step layer; sequences 4 x 4096 }
"""
)
"""Each rank of a group has all rows."""


def scenario_of(text: str) -> StepScenario:
    step = compile_text(text).step()
    assert step is not None
    return step


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "schedule",
    [
        StepSchedule("", Pipeline(PipelineKind.DUAL), zero=3),
        StepSchedule("", zero=1, overlapped=BESIDE),
        StepSchedule("", zero=3, overlapped=BESIDE, keep=KEEP_LEAST),
        StepSchedule("", zero=0),
        StepSchedule("", Pipeline(PipelineKind.INTERLEAVED, 2), zero=2),
        StepSchedule("", Pipeline(PipelineKind.ZERO_BUBBLE), zero=1),
    ],
)
def test_layers_of_several_workloads_have_the_weights_of_the_serial_step(schedule: StepSchedule) -> None:
    of = job_of(scenario_of(KINDS), schedule)
    assert [kind.groups for kind in of.kinds] == [((0, 1), (2, 3)), ((0, 1), (2, 3)), ((0, 1, 2, 3),)]
    names = [of.called(layer) for layer in range(len(of.parts))]
    assert names[1:4] == ["dense of layer 1", "moe_tp of layer 2", "moe_ep of layer 2"]
    assert (of.num_ranks, of.num_layers, of.pipelines) == (8, 4, 1)
    assert ended(of) == (Outcome.EXACT, "")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "schedule",
    [
        StepSchedule("", zero=2, context=ContextKind.RING),
        StepSchedule("", zero=1),
        StepSchedule("", Pipeline(PipelineKind.ZERO_BUBBLE), zero=3, keep="r, u"),
    ],
)
def test_experts_beside_sequences_in_parts_are_those_of_the_serial_step(schedule: StepSchedule) -> None:
    """Ranks of one group have parts of several sequences; attention that is made again takes the others' once more."""
    keep = f"schedule some for train {{ keep {schedule.keep} }}\n" if schedule.keep != "all" else ""
    of = job_of(scenario_of(CONTEXT + keep), schedule)
    (kind,) = of.kinds
    assert (kind.groups, kind.contexts) == (((0, 1, 2, 3),), ((0, 1), (2, 3)))
    exchanges, work = 0, kind.backward[0]
    while work.exchange is not None:
        exchanges, work = exchanges + 1, work.exchange.rest
    assert exchanges == (2 if keep else 1)
    assert ended(of) == (Outcome.EXACT, "")


@pytest.mark.parametrize("schedule", first([StepSchedule("", zero=1), StepSchedule("", zero=3)], 1))
def test_what_all_ranks_of_a_group_have_is_sent_in_parts_and_gathered(schedule: StepSchedule) -> None:
    of = job_of(scenario_of(WHOLE), schedule)
    (kind,) = of.kinds
    assert of.send is not None
    (sent,) = of.send.workload.tensors
    whole = next(each for each in kind.forward.workload.tensors if each.name == kind.taken)
    assert (sent.rows, sent.cols) == (whole.rows // 2, whole.cols)
    assert ended(of) == (Outcome.EXACT, "")


def test_gradients_of_whole_activations_are_summed_in_each_pass() -> None:
    """Those of whole weights alone are left to the end of the step."""
    (part,) = scenario_of(WHOLE).step.blocks[0].parts
    back = part.back("all").workload
    assert [op.name for op in back.ops if op.shape.pattern is Pattern.GEMM_AR] == ["d_y_norm"]


@pytest.mark.parametrize(("text", "has"), [(KINDS, True), (WHOLE, False)])
def test_flags_of_megatron_say_whether_activations_are_cut(text: str, has: bool) -> None:
    outcome = outcome_of(scenario_of(text), StepSchedule(""), LayerTimes())
    assert ("--sequence-parallel" in dict(flags_of(outcome))["Megatron-LM"]) is has


# Faults.


def test_parts_that_are_not_gathered_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    carried = CarriedStep._carried

    def of_other_ranks(self: CarriedStep, work: GroupWork, given: Values, wanted: list[str], task: StageTask) -> Values:
        found = carried(self, work, given, wanted, task)
        if work is self._job.rejoin:
            found[""] = tuple(whole[:1].repeat(2, axis=0) for whole in found[""])
        return found

    monkeypatch.setattr(CarriedStep, "_carried", of_other_ranks)
    assert ended(job_of(scenario_of(WHOLE), StepSchedule("", zero=1)))[0] is Outcome.WRONG


def test_rows_that_go_to_other_ranks_of_a_larger_group_are_found() -> None:
    """The serial step has the groups of its layers; a step whose ranks lie otherwise ends with other weights."""
    of = job_of(scenario_of(FEW), StepSchedule("", zero=0))
    run = CarriedStep(of, 0)
    wrong = replace(of.kinds[2], groups=((1, 0, 2, 3),))
    run.serial = SerialStep(replace(of, kinds=(*of.kinds[:2], wrong)), 0)
    run.work()
    outcome, (sentence, *_) = run.found()
    assert outcome is Outcome.WRONG
    assert "in place of" in sentence


# What is not carried out.


@pytest.mark.parametrize(
    ("hidden", "shard", "why"),
    [
        (512, "shard rows", "ranks of moe_tp and of dense hand on tensors of other sizes"),
        (1024, "", "ranks of dense have all of what they hand to those of other workloads"),
    ],
)
def test_what_other_workloads_do_not_take_is_refused(hidden: int, shard: str, why: str) -> None:
    dense = f"""workload dense on node.tp {{
  x = tensor bf16[2048, {hidden}] {shard}
  w = tensor bf16[{hidden}, {hidden}]
  y = add(x, gemm(norm(x), w))
  repeat 2 y as x
}}
"""
    rest = KINDS[KINDS.index("workload moe") :]
    with pytest.raises(RunRefused) as refused:
        job_of(scenario_of(KINDS[: KINDS.index("workload dense")] + dense + rest), StepSchedule(""))
    assert why in refused.value.rejection.message


# Where ranks lie.


def test_ranks_of_a_pipeline_are_those_that_compute_a_pass_together() -> None:
    """Of groups along tp, and along tp and dp; stages are the innermost axis here."""
    text = FEW.replace("mesh tp 2, dp 2, pp 2;", "mesh pp 2, tp 2, dp 2;")
    scenario = scenario_of(text)
    of = job_of(scenario, StepSchedule("", zero=0))
    assert sorted(of.rank(stage, 0, place) for stage in (0, 1) for place in range(4)) == list(range(8))
    assert [of.rank(1, 0, place) for place in range(4)] == [1, 3, 5, 7]
    assert ended(of) == (Outcome.EXACT, "")


@pytest.mark.parametrize(
    ("ranks", "copies", "parts", "wanted"),
    [
        # tp 2, dp 8: two copies
        (StageRanks(16, 16, ((1, 2),), ((1, 1),)), 2, 1, (4, ((1, 2),), ((1, 1),))),
        # dp 8, tp 2: a group is every eighth rank, then every second one
        (StageRanks(16, 16, ((8, 2),), ((1, 1),)), 2, 1, (4, ((2, 2),), ((1, 1),))),
        # tp 2, cp 4, dp 4: sequences in two parts
        (StageRanks(32, 32, ((1, 2),), ((2, 4),)), 2, 2, (4, ((1, 2),), ((2, 2),))),
        # tp 2, ep 8 over tp and dp: whole groups of both
        (StageRanks(64, 64, ((1, 2), (1, 8)), ((1, 1), (1, 1))), 2, 1, (16, ((1, 2), (1, 8)), ((1, 1), (1, 1)))),
        # cp 4, ep 16 over cp and dp: a sequence stays on four ranks
        (StageRanks(32, 32, ((1, 16),), ((1, 4),)), 2, 2, (16, ((1, 16),), ((1, 4),))),
        # groups of 4 and of 6 ranks
        (StageRanks(24, 24, ((1, 4), (1, 6)), ((1, 1), (1, 1))), 2, 1, (24, ((1, 4), (1, 6)), ((1, 1), (1, 1)))),
    ],
)
def test_fewer_ranks_have_groups_of_whole_size(
    ranks: StageRanks, copies: int, parts: int, wanted: tuple[int, object, object]
) -> None:
    fewer = ranks.fewer(copies, parts)
    assert (fewer.size, fewer.groups, fewer.contexts) == wanted
    for span in (*fewer.groups, *fewer.contexts):
        places = [place for group in fewer.places(span) for place in group]
        assert sorted(places) == list(range(fewer.size // fewer.pipelines))


def test_spans_are_those_of_the_mesh() -> None:
    scenario = scenario_of(CONTEXT.replace("cp 2, dp 2, pp 2", "pp 2, cp 2, dp 2"))
    ranks = ranks_of_stage(scenario, scenario.step.blocks[0].parts)
    assert (ranks.size, ranks.far, ranks.groups, ranks.contexts) == (4, 1, ((1, 4),), ((1, 2),))
