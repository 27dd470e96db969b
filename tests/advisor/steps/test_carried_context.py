"""A step whose sequences lie on several ranks, carried out: what attention takes of other parts, and what goes back."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from magus.advisor.steps.carried import job_of
from magus.compiler import compile_text
from magus.compiler.ir.step import KEEP_LEAST, ContextKind, Overlapped, Pipeline, PipelineKind, StepSchedule
from magus.runtime import Outcome
from magus.runtime.memory import Array
from magus.runtime.operands import MODULUS
from magus.runtime.problem import mixture
from magus.runtime.steps import context
from magus.runtime.steps.serial import SerialLayer
from magus.runtime.steps.work import KeyExchange, StepWork
from tests.helpers.marks import first
from tests.helpers.steps import ended

RING = ContextKind.RING
BESIDE = (Overlapped.GRADIENTS, Overlapped.WEIGHTS)
TEXT = """use "nvidia/h100"
system pod {{ gpus {gpus} x H100; fabric full_mesh(nvlink); mesh tp {tp}, cp {cp}, dp {dp}, pp {pp} }}
workload layer on pod.tp {{
  x = tensor bf16[3072 / {cp}, 1024] shard rows
  wq = tensor bf16[1024, 1024] shard cols
  wk = tensor bf16[1024, 512] shard cols
  wo = tensor bf16[1024, 1024] shard rows
  g = all_gather(norm(x))
  a = attention(gemm(g, wq), gemm(g, wk), heads=8, kv_heads=2, causal=yes, over=cp)
  y = add(x, reduce_scatter(gemm(a, wo)))
  repeat {layers} y as x
}}
workload train on pod {{ step layer; sequences {sequences} x 3072 }}
"""


def job(schedule: StepSchedule, tp: int = 2, cp: int = 2, dp: int = 1, pp: int = 1) -> StepWork:
    text = TEXT.format(gpus=tp * cp * dp * pp, tp=tp, cp=cp, dp=dp, pp=pp, layers=2 * pp, sequences=2 * pp * dp)
    step = compile_text(text).step()
    assert step is not None
    return job_of(step, schedule)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("schedule", "axes"),
    [
        (StepSchedule("", zero=1, context=RING), (1, 3, 1, 1)),
        (StepSchedule("", zero=0, context=RING, keep=KEEP_LEAST), (1, 4, 1, 2)),
        (StepSchedule("", Pipeline(PipelineKind.ZERO_BUBBLE), zero=3, overlapped=BESIDE), (2, 2, 1, 2)),
        (StepSchedule("", Pipeline(PipelineKind.INTERLEAVED, 2), zero=2, context=RING), (1, 2, 2, 2)),
        (StepSchedule("", Pipeline(PipelineKind.DUAL), zero=1), (1, 2, 1, 2)),
        (StepSchedule("", zero=1), (2, 2, 2, 1)),
    ],
)
def test_weights_are_those_of_a_step_with_whole_sequences(
    schedule: StepSchedule, axes: tuple[int, int, int, int]
) -> None:
    tp, cp, dp, pp = axes
    of = job(schedule, *axes)
    assert (of.num_ranks, len(of.of(0).contexts[0]), of.pipelines) == (tp * cp * dp * pp, cp, dp)
    assert ended(of) == (Outcome.EXACT, "")


def exchange_of(of: StepWork) -> KeyExchange:
    exchange = of.of(0).forward.exchange
    assert exchange is not None
    return exchange


def test_the_serial_step_has_whole_sequences() -> None:
    """Attention of each part takes its own rows, and keys and values of the other one."""
    of = job(StepSchedule(""), tp=1)
    exchange, kind = exchange_of(of), of.of(0)
    made = kind.forward.workload.op("a")
    assert (exchange.operands, exchange.made, made.name) == (("a_gemm", "a_gemm2"), "a", "a")
    sizes = {each.name: (each.rows, each.cols) for each in kind.forward.workload.tensors}
    (rows, width), cols = sizes["a_gemm"], sizes["a_gemm2"][1]
    assert exchange.cols == cols
    draw = np.random.default_rng(0)
    queries, keys = (draw.integers(-4, 5, (2 * rows, each)).astype(float) for each in (width, cols))
    layer = SerialLayer(kind, kind.forward, 0)
    known = zip(np.split(queries, 2), np.split(keys, 2), strict=True)
    found = np.concatenate(layer._made(made, [{"a_gemm": q, "a_gemm2": k} for q, k in known]))
    where = np.arange(rows), np.arange(found.shape[1])
    for own, other in ((0, 1), (1, 0)):
        mine, theirs = slice(own * rows, (own + 1) * rows), slice(other * rows, (other + 1) * rows)
        wanted = mixture(0, "a", [queries[mine], keys[mine]], *where, by_rows=False)
        wanted += mixture(0, f"a of part {own}, block {other}", [keys[theirs]], *where, by_rows=False)
        assert np.array_equal(found[mine], wanted % MODULUS)


# Faults.


def of_the_wrong(blocks: Callable[..., list[list[Array]]]) -> Callable[..., list[list[Array]]]:
    """Blocks in another order than that of the parts."""
    return lambda *given, **named: [found[1:] + found[:1] for found in blocks(*given, **named)]


@pytest.mark.parametrize("kind", list(ContextKind))
def test_keys_of_the_wrong_part_are_found(kind: ContextKind, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "_in_turn" if kind is RING else "_gathered"
    of = job(StepSchedule("", zero=0, context=kind), tp=1, cp=3)
    monkeypatch.setattr(context, name, of_the_wrong(getattr(context, name)))
    outcome, sentence = ended(of)
    assert outcome is Outcome.WRONG
    assert "microbatch 0 of pipeline 0 adds another gradient than in the serial step" in sentence


def test_gradients_that_stay_away_from_home_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ring they go one neighbour further than their blocks."""
    of = job(StepSchedule("", zero=0, context=RING), tp=1)
    shifted = context._shifted

    def stays(of: KeyExchange, values: Sequence[Array], *, carry: context.Carry) -> list[Array]:
        return list(values) if of.gradient else shifted(of, values, carry=carry)

    monkeypatch.setattr(context, "_shifted", stays)
    assert ended(of)[0] is Outcome.WRONG


# Parts of what attention makes.


@pytest.mark.parametrize("kind", first([PipelineKind.ZERO_BUBBLE, PipelineKind.DUAL], 1))
def test_columns_of_gradients_are_taken_by_the_weights_they_are_of(kind: PipelineKind) -> None:
    """Gradients of queries and of keys lie side by side, and gradients of weights, which come later, take some."""
    assert ended(job(StepSchedule("", Pipeline(kind), zero=0), tp=1, cp=1, pp=2)) == (Outcome.EXACT, "")
