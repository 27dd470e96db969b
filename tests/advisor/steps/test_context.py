"""Sequences on several ranks: what the exchange of keys and values takes, and what memory and groups are then."""

from dataclasses import replace

import pytest

from magus.advisor.layers.beside import GroupLayer, LayerBeside, SharedTraffic, crosses_nodes
from magus.advisor.steps.layer_times import TRAFFIC_PACKET, LayerTimes, PassOf
from magus.advisor.steps.outcome import outcome_of
from magus.advisor.steps.plans import flags_of
from magus.advisor.steps.space import schedules_of
from magus.advisor.steps.times import buffer_bytes, exchange_ticks, exchanged_bytes
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import AttentionShape, DType, Made, Pattern, Workload
from magus.compiler.ir.step import ContextKind, StepScenario, StepSchedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.compiler.text.diagnostics import CompileError

LENGTH = 4096
TEXT = f"""
use "nvidia/h100"
param CP = 2 in 1, 2, 4
link ib {{ bandwidth 50 GB/s; achieved 45 GB/s @assumed; latency 2 us @assumed }}
system pod {{
  gpus 16 x H100
  fabric rails(nvswitch, link=nvlink, node=8, nic=ib)
  mesh tp 2, cp CP, dp 4 / CP, pp 2
}}
workload layer on pod.tp {{
  x = tensor bf16[{LENGTH} / CP, 1024] shard rows
  wqkv = tensor bf16[1024, 1536] shard cols
  wo = tensor bf16[1024, 1024] shard rows
  a = attention(gemm(all_gather(norm(x)), wqkv), heads=8, kv_heads=2, causal=yes, over=cp)
  y = add(x, reduce_scatter(gemm(a, wo)))
  repeat 4 y as x
}}
workload train on pod {{ step layer; sequences 16 x {LENGTH}; head 8192 }}
explore train {{ context gathered, ring }}
"""
HEAD_DIM = 128


def step_of(cp: int, text: str = TEXT) -> StepScenario:
    found = compile_text(text, "context.mgs", (("CP", str(cp)),)).step()
    assert found is not None
    return found


def refused(text: str, cp: int = 2) -> CompileError:
    with pytest.raises(CompileError) as caught:
        step_of(cp, text)
    return caught.value


def test_sequences_are_counted_by_dp_alone() -> None:
    """All ranks that hold the same weights reduce gradients, and share their states."""
    for cp in (1, 2, 4):
        step = step_of(cp)
        (part,) = step.step.blocks[0].parts
        assert step.step.microbatches == 16 * cp / 4
        assert part.copies is not None and part.copies.num_ranks == 4
        assert (part.context is None) == (cp == 1)
        assert step.in_context == (cp > 1)


def test_pairs_of_all_ranks_are_those_of_the_sequence() -> None:
    """Early and late chunks: each rank has its share of the pairs, within a key of each query."""
    for name in ("forward", "back"):
        found = []
        for cp in (1, 2, 4):
            part = step_of(cp).step.blocks[0].parts[0]
            workload = (part.forward if name == "forward" else part.back("all")).workload
            (kernel,) = (op.shape.kernel for op in workload.ops if isinstance(op.shape.kernel, AttentionShape))
            found.append(kernel.flops * cp)
        assert found[1:] == pytest.approx(found[:1] * 2, rel=1 / LENGTH)


def test_one_rank_exchanges_nothing() -> None:
    """A step whose axis has one rank is the step without the axis."""
    times, schedule = LayerTimes(), StepSchedule("s")
    without = TEXT.replace(", over=cp", "").replace("cp CP, ", "")
    one, none = outcome_of(step_of(1), schedule, times), outcome_of(step_of(1, without), schedule, times)
    assert one.run.makespan_ticks == none.run.makespan_ticks
    assert one.memory == none.memory


def test_keys_of_all_ranks_are_gathered_and_gradients_scattered() -> None:
    """Bytes are those of a sequence of the heads of a rank, of which all but its own cross a link."""
    step = step_of(4)
    (part,) = step.step.blocks[0].parts
    size = LENGTH * 2 * HEAD_DIM * 2  # one head of keys and values of a rank, in 2 bytes
    assert exchanged_bytes(part.forward) == size
    assert buffer_bytes(part.forward, ContextKind.RING) == size // 2
    assert part.context is not None
    times, link = LayerTimes(), part.context.fabric.link.achieved_bytes_per_s
    forward, backward = (
        exchange_ticks(PassOf(of), part.context, ContextKind.GATHERED, times, backward=late)
        for of, late in ((part.forward, False), (part.back("all"), True))
    )
    assert forward >= size * 3 / 4 / link * 1e14
    assert backward > 1.5 * forward


def test_a_ring_takes_no_less_than_attention_and_no_less_than_its_links() -> None:
    """Over a slow network blocks take longer than attention to one of them, and a ring is what they take."""
    step = step_of(4)
    (part,) = step.step.blocks[0].parts
    assert part.context is not None
    for times in (LayerTimes(), LayerTimes(contended=False)):
        found = [
            exchange_ticks(PassOf(part.forward), part.context, kind, times, backward=False) for kind in ContextKind
        ]
        assert all(ticks >= 0 for ticks in found)
    apart = exchange_ticks(PassOf(part.forward), part.context, ContextKind.RING, times, backward=False)
    beside = exchange_ticks(PassOf(part.forward), part.context, ContextKind.RING, LayerTimes(), backward=False)
    assert beside >= apart


def test_a_block_comes_beside_attention_to_the_one_before() -> None:
    """Between nodes too: a send has SMs when attention begins, and a step of the ring is as long as the longer one."""
    text = TEXT.replace("node=8", "node=2").replace(str(LENGTH), "32768")
    (part,) = step_of(4, text).step.blocks[0].parts
    assert part.context is not None and crosses_nodes(part.context)
    attention = replace(part.forward, workload=alone_of(part.forward.workload))
    pair = replace(part.context, num_ranks=2)
    traffic = SharedTraffic(pair, Pattern.ALL_GATHER, DType.FP8, 2 * exchanged_bytes(part.forward) // 4, sends=True)
    question = LayerBeside(GroupLayer.of(attention, SERIAL), traffic, TRAFFIC_PACKET, alike=True)
    both, (layer_alone, traffic_alone) = question.ticks(), (each.ticks() for each in question.alone)
    assert both is not None and max(both) < 1.05 * max(layer_alone, traffic_alone)
    # Else copies wait for SMs until attention has ended.
    waiting = replace(question, second=replace(traffic, sends=False)).ticks()
    assert waiting is not None and waiting[1] > layer_alone > both[1]


def alone_of(workload: Workload) -> Workload:
    """The attention of a layer by itself."""
    (op,) = (each for each in workload.ops if isinstance(each.shape.kernel, AttentionShape))
    op = replace(op, reads=tuple(replace(each, made_by="", what=Made.OUTPUT) for each in op.reads))
    results = tuple(each for each in workload.results if each[1] == op.name)
    return replace(workload, ops=(op,), results=results, repeat=None, batch=None)


def test_longer_sequences_fit_where_more_ranks_share_them() -> None:
    times = LayerTimes(contended=False)
    kept = [outcome_of(step_of(cp), StepSchedule("s"), times).memory[0].activations for cp in (1, 2, 4)]
    assert kept == [kept[0], kept[0] // 2, kept[0] // 4]


def test_both_exchanges_are_compared_and_told_to_frameworks() -> None:
    step, times = step_of(2), LayerTimes(contended=False)
    schedules = list(schedules_of(step))
    assert [each.context for each in schedules] == list(ContextKind)
    assert len({each.name for each in schedules}) == 2
    for each, flag in zip(schedules, ("--cp-comm-type all_gather", "--cp-comm-type p2p"), strict=True):
        flags = dict(flags_of(outcome_of(step, each, times)))
        assert "--context-parallel-size 2" in flags["Megatron-LM"] and flag in flags["Megatron-LM"]
    assert [each.context for each in schedules_of(step_of(1))] == [ContextKind.GATHERED]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("over=cp", "over=sp"), Code.MGS203, "no axis 'sp'"),
        (("over=cp", "over=pp"), Code.MGS570, "other layers"),
        (("over=cp", "over=tp"), Code.MGS570, "other columns"),
        (("4096 / CP", "4096"), Code.MGS570, "sees 2 x 4,096 positions of cp, and a sequence has 4,096"),
        (("causal=yes", "causal=yes, window=128"), Code.MGS520, "a window"),
        (("context gathered", "context rings"), Code.MGS204, "rings"),
    ],
)
def test_what_cannot_be_is_told(change: tuple[str, str], code: Code, message: str) -> None:
    found = refused(TEXT.replace(*change))
    assert found.first.code is code
    assert message in found.first.message


def test_each_rank_has_an_early_and_a_late_chunk() -> None:
    odd = TEXT.replace("mesh tp 2, cp CP, dp 4 / CP", "mesh tp 1, cp CP, dp 8 / CP").replace("[4096 / CP", "[6 / CP")
    found = refused(odd)
    assert found.first.code is Code.MGS304
    assert "two chunks of a sequence, not 3 rows" in found.first.message
    assert found.first.hint == "4 chunks divide the sequence"


def test_a_layer_by_itself_is_not_asked_about() -> None:
    """What it exchanges is known in its step alone."""
    with pytest.raises(CompileError) as caught:
        compile_text(TEXT).scenario("layer")
    assert caught.value.first.code is Code.MGS573
    assert compile_text(TEXT, settings=(("CP", "1"),)).scenario("layer").num_layers == 4
