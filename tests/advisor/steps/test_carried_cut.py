"""Steps whose layers are in batches and groups, carried out: their pieces are put together, weights are the same."""

from typing import Any

import numpy as np
import pytest

from magus.advisor.steps.carried import job_of
from magus.advisor.steps.layer_times import LayerTimes, PassOf
from magus.advisor.steps.outcome import outcome_of
from magus.compiler import compile_text
from magus.compiler.ir.step import StepSchedule
from magus.runtime import Outcome, RunRefused
from magus.runtime.memory import Array
from magus.runtime.operands import ADDED
from magus.runtime.steps.cut import CutWork
from magus.runtime.steps.run import carry_out_step
from magus.runtime.steps.serial import SerialStep
from magus.runtime.steps.work import StepWork
from magus.runtime.wiring import OperandWire, wires_of
from tests.helpers.steps import ended

DENSE = """use "nvidia/h100"
system node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh tp 2, dp 2, pp 2 }
workload layer on node.tp {
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 4096] shard cols
  v = tensor bf16[4096, 1024] shard rows
  u = gemm(all_gather(norm(x)), w)
  y = add(x, reduce_scatter(gemm(gelu(u), v)))
  repeat 4 y as x
  batch x by 1024
}
workload train on node { step layer; sequences 16 x 1024 }
schedule halves for layer { batches 2; separate y by dma(7) }
schedule quarters for layer { batches 4 }
"""
ATTENTION = """use "nvidia/h100"
system pod { gpus 8 x H100; fabric full_mesh(nvlink); mesh tp 2, cp CP, dp 2 / CP, pp 2 }
param CP = 1
workload layer on pod.tp {
  x = tensor bf16[6144 / CP, 1024] shard rows
  wq = tensor bf16[1024, 1024] shard cols
  wk = tensor bf16[1024, 512] shard cols
  wo = tensor bf16[1024, 1024] shard rows
  g = all_gather(norm(x))
  a = attention(gemm(g, wq), gemm(g, wk), heads=8, kv_heads=2, causal=yes, over=cp)
  y = add(x, reduce_scatter(gemm(a, wo)))
  repeat 4 y as x
  batch x by 3072 / CP
}
workload back on pod.tp { backward layer; keep a }
workload train on pod { step layer; sequences 8 x 3072 }
workload both on pod { step layer, back; sequences 8 x 3072 }
schedule halves for layer { batches 2 }
schedule back_too for back { batches 2 }
"""
EXPERTS = """use "nvidia/h100"
system node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 4, pp 2; mesh ep 4 over dp }
workload moe on node.ep {
  x   = tensor bf16[8192, 1024] shard rows
  w   = tensor bf16[1024, 1024]
  wup = tensor bf16[16 * 1024, 2048] shard rows
  wdn = tensor bf16[16 * 1024, 1024] shard rows
  r = add(x, gemm(norm(x), w))
  t = dispatch(norm(r), experts=16, top=2)
  u = grouped_gemm(t, wup)
  y = add(r, combine(grouped_gemm(swiglu(u), wdn)))
  repeat 4 y as x
  batch x by 1024
}
workload back on node.ep { backward moe; keep r, t, u }
workload train on node { step moe; sequences 32 x 1024 }
workload both on node { step moe, back; sequences 32 x 1024 }
schedule groups for moe { groups of 1, 3 }
schedule halves for moe { batches 2; groups 2 }
schedule same for back { batches 2; groups 2 }
schedule other for back { groups of 1, 3 }
"""

SHARED = """use "nvidia/h100"
system pod { gpus 4 x H100; fabric switch(nvswitch, link=nvlink); mesh dp 2, pp 2 }
workload layer on pod.dp {
  x = tensor bf16[4096, 1024] shard rows
  w = tensor bf16[1024, 512] shard flat
  v = tensor bf16[512, 1024]
  wg = all_gather(w)
  y = add(x, gemm(gelu(gemm(norm(x), wg)), v))
  repeat 2 y as x
  batch x by 1024
}
workload back on pod.dp { backward layer }
workload train on pod { step layer; sequences 16 x 1024 }
workload both on pod { step layer, back; sequences 16 x 1024 }
schedule halves for back { batches 2 }
schedule apart for back { batches 2; separate d_w by dma(1) }
"""
"""Each rank has a part of ``w``, whose gradient ranks sum in the pass: behind the last batch, with those before."""


def job(text: str, schedule: str, settings: tuple[tuple[str, str], ...] = ()) -> StepWork:
    """The step ``both`` where a schedule names its backward pass, else ``train``."""
    name = "both" if "back =" in schedule else "train"
    step = compile_text(f"{text}schedule s for {name} {{ {schedule} }}", settings=settings).step(name)
    assert step is not None
    return job_of(step, step.schedules[0])


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("text", "schedule", "settings"),
    [
        (DENSE, "zero 3; layer = halves", ()),
        (DENSE, "zero 1; pipeline zero_bubble; keep least; layer = quarters", ()),
        (ATTENTION, "zero 1; overlap gradients; layer = halves", ()),
        (ATTENTION, "zero 2; pipeline zero_bubble; keep a; layer = halves", (("CP", "2"),)),
        (ATTENTION, "zero 1; context ring; back = back_too", (("CP", "2"),)),
        (SHARED, "zero 1; back = halves", ()),
        (SHARED, "zero 3; pipeline zero_bubble; back = apart", ()),
        (EXPERTS, "zero 1; keep r, u; moe = groups", ()),
        (EXPERTS, "zero 0; pipeline dual; keep r; moe = halves", ()),
        (EXPERTS, "zero 3; pipeline zero_bubble; moe = halves; back = same", ()),
    ],
)
def test_weights_are_those_of_the_serial_step(text: str, schedule: str, settings: tuple[tuple[str, str], ...]) -> None:
    of = job(text, schedule, settings)
    passes = [work.cut for kind in of.kinds for work in (kind.forward, *kind.backward)]
    assert any(cut is not None and len(cut.work.workload.ops) > len(cut.whole.ops) for cut in passes)
    assert ended(of) == (Outcome.EXACT, "")


def test_batches_of_rows_leave_the_weights_that_the_whole_leaves() -> None:
    """Where each row is computed by itself the serial step knows nothing of batches."""
    cut, whole = (SerialStep(job(DENSE, f"zero 1{more}"), 0).weights for more in ("; layer = halves", ""))
    assert len(cut) == len(whole) == 4
    for one, other in zip(cut, whole, strict=True):
        assert one.keys() == other.keys() == {"w", "v"}
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_batches_lie_below_each_other_at_each_rank() -> None:
    """Of rows that a rank has alone, and apart where it has those of two ranks."""
    cut = job(DENSE, "zero 1; layer = halves").kinds[0].forward.cut
    assert cut is not None
    rows, width = cut.shape_of("x")
    own = np.arange(rows * width, dtype=float).reshape(rows, width)
    both = np.arange(2 * rows * cut.shape_of("u")[1], dtype=float).reshape(2 * rows, -1)
    for name, values, wanted in (
        ("x", own, own[: rows // 2]),
        ("u", both, np.concatenate([both[: rows // 2], both[rows : rows * 3 // 2]])),
    ):
        pieces = cut.apart(name, values)
        assert list(pieces) == [f"{name}[0]", f"{name}[1]"]
        assert np.array_equal(pieces[f"{name}[0]"], wanted)
        assert np.array_equal(cut.together(name, pieces), values)


# Faults.


@pytest.mark.parametrize(
    ("text", "schedule"),
    [(DENSE, "layer = halves"), pytest.param(EXPERTS, "keep r; moe = groups", marks=pytest.mark.slow)],
)
def test_pieces_in_the_wrong_places_are_found(text: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are where others should be, on the ranks and not in the serial step."""
    of, apart = job(text, f"zero 1; {schedule}"), CutWork.apart
    serial = SerialStep(of, 0)

    def turned(self: CutWork, name: str, values: Array) -> dict[str, Array]:
        return apart(self, name, np.roll(values, 1, axis=0) if name in ("u", "wup", "x") else values)

    monkeypatch.setattr(CutWork, "apart", turned)
    monkeypatch.setattr("magus.runtime.steps.run.SerialStep", lambda *_: serial)
    (run,) = carry_out_step(of, (0,)).runs
    assert run.outcome is Outcome.WRONG
    assert "adds another gradient than in the serial step" in run.sentences[0]


def test_what_batches_before_the_last_make_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    of = job(SHARED, "zero 1; back = halves")

    def alone(*parts: Any) -> tuple[OperandWire, ...]:
        return tuple(wire for wire in wires_of(*parts) if wire.key != ADDED)

    monkeypatch.setattr("magus.runtime.wiring.wires_of", alone)
    (run,) = carry_out_step(of, (0,)).runs
    assert run.outcome is Outcome.WRONG
    assert "adds another gradient than in the serial step" in run.sentences[0]


# What is not carried out.


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("keep r, u; moe = halves", "u has rows at experts, which are others in the batches or groups of moe and of "),
        (
            "moe = halves; back = other",
            "t has rows at experts, which are others in the batches or groups of moe and of",
        ),
    ],
)
def test_rows_at_experts_are_those_of_the_same_batches(schedule: str, why: str) -> None:
    with pytest.raises(RunRefused) as refused:
        job(EXPERTS, schedule)
    assert refused.value.rejection.message.startswith(why)


def test_gradients_that_a_written_pass_sums_are_summed_once() -> None:
    """Those of weights that each rank of a group has whole, among all ranks and behind all microbatches."""
    step = compile_text(EXPERTS).step("both")
    assert step is not None
    assert ended(job_of(step, StepSchedule("usual"))) == (Outcome.EXACT, "")


def test_gradients_of_weights_that_come_with_those_of_inputs_are_added_once() -> None:
    """In a zero bubble those that ranks sum in the pass itself are made ahead of the others."""
    assert ended(job(SHARED, "zero 1; pipeline zero_bubble")) == (Outcome.EXACT, "")


@pytest.mark.parametrize("pipeline", ["one_f_one_b", "zero_bubble"])
def test_gradients_of_weights_in_batches_are_simulated_by_their_pieces(pipeline: str) -> None:
    """Ops of batches have names of their own, and so has what a step takes apart."""
    step = compile_text(f"{SHARED}schedule s for both {{ pipeline {pipeline}; back = halves }}").step("both")
    assert step is not None
    times, (part,) = LayerTimes(), step.step.blocks[0].parts
    assert outcome_of(step, step.schedules[0], times).run.makespan_ticks > 0
    whole, halves = (times.of(PassOf(part.back(""), name)) for name in (None, "halves"))
    assert 0 < whole.weights <= halves.weights < halves.ticks
