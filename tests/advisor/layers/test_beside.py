"""A layer with traffic beside it: slower than alone, by less where less is moved or links are faster."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from magus.advisor.layers import beside
from magus.advisor.layers.beside import GroupLayer, LayerBeside, SharedTraffic, traffic_plan
from magus.advisor.layers.orders import by_library
from magus.advisor.steps.layer_times import LayerTimes, PassOf, schedule_of
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import DType, OpChoice, Pattern, Scenario, System
from magus.compiler.resolve.schedules.from_text import SERIAL

TEXT = """use "nvidia/h100"
link ib { bandwidth 50 GB/s; achieved NIC; latency 1.5 us }
system pod { gpus 32 x H100; fabric FABRIC; mesh tp TP, dp 32 / TP }
workload layer on pod.tp {
  x = tensor bf16[2048, 2048] shard rows
  w1 = tensor bf16[2048, 8192] shard cols
  w2 = tensor bf16[8192, 2048] shard rows
  h = gemm(all_gather(x), w1)
  y = reduce_scatter(gemm(h, w2))
  repeat 8 y as x
}
workload back on pod.tp { backward layer; keep h }
workload sums on pod.dp { g = tensor bf16[1024, 64]; s = all_reduce(g) }
"""
RAILS = "rails(nvswitch, link=nvlink, node=8, nic=ib)"
WEIGHTS = 2 * 2048 * 8192
KINDS = {
    "gradients": ("back", Pattern.REDUCE_SCATTER, DType.FP32),
    "summed": ("back", Pattern.ALL_REDUCE, DType.BF16),
    "weights": ("layer", Pattern.ALL_GATHER, DType.BF16),
}


def layer_and_copies(name: str, tp: int, fabric: str = RAILS, nic: str = "45 GB/s") -> tuple[Scenario, System]:
    text = TEXT.replace("NIC", nic).replace("FABRIC", fabric).replace("TP", str(tp))
    found = compile_text(text)
    return found.scenario(name), found.scenario("sums").system


class Ticks(NamedTuple):
    """Ticks of a layer and of traffic, each alone and beside the other."""

    layer_alone: int
    traffic_alone: int
    layer: int
    traffic: int

    @property
    def longer(self) -> float:
        return self.layer / self.layer_alone


def ticks(kind: str, tp: int, elements: int, fabric: str = RAILS, nic: str = "45 GB/s") -> Ticks:
    name, pattern, dtype = KINDS[kind]
    layer, copies = layer_and_copies(name, tp, fabric, nic)
    known, _ = by_library(layer)
    assert known is not None
    question = LayerBeside(GroupLayer.of(layer, known.choice), SharedTraffic(copies, pattern, dtype, elements))
    both = question.ticks()
    assert both is not None and question.rejection is None
    alone = [each.ticks() for each in question.alone]
    return Ticks(alone[0], alone[1], *both)


@pytest.mark.parametrize("tp", [8, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_slower_beside_traffic_and_both_take_less_than_in_turn(kind: str, tp: int) -> None:
    found = ticks(kind, tp, WEIGHTS // tp)

    assert found.layer_alone < found.layer and found.traffic_alone <= found.traffic
    assert max(found.layer, found.traffic) < found.layer_alone + found.traffic_alone


def test_less_traffic_and_faster_links_cost_the_layer_less() -> None:
    most, less, little = (ticks("gradients", 8, WEIGHTS // 8 // part) for part in (1, 4, 256))
    slow, fast = (ticks("gradients", 8, WEIGHTS // 8, nic=nic) for nic in ("22 GB/s", "45 GB/s"))

    assert most.layer_alone == less.layer_alone == little.layer_alone
    assert most.layer >= less.layer >= little.layer
    assert little.longer < 1.02
    assert fast.traffic < slow.traffic


def test_ranks_that_share_a_nic_gather_first_in_their_node() -> None:
    """With tensor parallelism over 8 a rank of a group is in a node; over 2 there are four, which rings do not use."""
    plans = {}
    for tp in (8, 2):
        _, copies = layer_and_copies("layer", tp)
        _, plan = traffic_plan(SharedTraffic(copies, Pattern.ALL_GATHER, DType.BF16, WEIGHTS // tp))
        plans[tp] = plan.expression.partition("algorithm=")[2]

    assert plans == {8: "ring)", 2: "hierarchical)"}


def test_the_library_moves_what_is_in_one_node() -> None:
    text = TEXT.replace("mesh tp TP, dp 32 / TP", "mesh dp 8, tp 4").replace("FABRIC", RAILS).replace("NIC", "45 GB/s")
    copies = compile_text(text).scenario("sums").system
    _, plan = traffic_plan(SharedTraffic(copies, Pattern.REDUCE_SCATTER, DType.FP32, WEIGHTS))

    assert plan.engine.by_library


@pytest.mark.quick(1)
@pytest.mark.parametrize(("gpus", "algorithm"), [(8, "ring"), (16, "hierarchical")])
def test_a_layer_moves_its_weights_as_traffic_does(gpus: int, algorithm: str) -> None:
    """Rails of one node have nobody to go to by node."""
    text = f"""use "nvidia/h100"
link ib {{ bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }}
system pod {{ gpus {gpus} x H100; fabric {RAILS}; mesh dp {gpus} }}
workload layer on pod.dp {{
  x = tensor bf16[{gpus} * 512, 2048] shard rows
  w = tensor bf16[2048, 8192] shard flat
  v = tensor bf16[8192, 2048] shard flat
  y = gemm(gemm(x, all_gather(w)), all_gather(v))
  repeat 4 y as x
}}
"""
    layer = compile_text(text).scenario("layer")
    moved = schedule_of(layer, None).modes
    _, plan = traffic_plan(SharedTraffic(layer.system, Pattern.ALL_GATHER, DType.BF16, WEIGHTS))

    assert {mode.body.algorithm for mode in moved if isinstance(mode.body, OpChoice)} == {algorithm}
    assert plan.expression.endswith(f"algorithm={algorithm})")
    assert LayerTimes().of(PassOf(layer)).ticks > 0


def test_what_is_shared_of_other_fabrics_is_not_known() -> None:
    layer, copies = layer_and_copies("layer", 8, "ring(nvlink)")
    found = LayerBeside(GroupLayer.of(layer, SERIAL), SharedTraffic(copies, Pattern.ALL_GATHER, DType.BF16, 1024))

    assert found.rejection is not None and found.rejection.code is Code.MGS440 and found.ticks() is None


def test_questions_are_told_apart_by_what_decides_the_ticks() -> None:
    """Neither the name of a schedule nor who may stop decides them: each question is simulated once."""
    layer, copies = layer_and_copies("layer", 8)
    known, _ = by_library(layer)
    assert known is not None
    traffic = SharedTraffic(copies, Pattern.ALL_GATHER, DType.BF16, WEIGHTS // 8)
    named = [LayerBeside(GroupLayer.of(layer, replace(known.choice, name=name)), traffic) for name in ("one", "other")]
    assert named[0] == named[1] and len({*named[0].alone, *named[1].alone}) == 2

    times = LayerTimes(noted={})
    assert times.longer(PassOf(layer), traffic) == (0, 0)
    assert times.noted is not None and [type(each).__name__ for each in times.noted] == ["LayerBeside"]
    again = replace(times, should_stop=lambda: False)
    again.longer(PassOf(layer), traffic)
    assert len(times.noted) == 1


@pytest.mark.parametrize("pattern", [Pattern.REDUCE_SCATTER, Pattern.ALL_GATHER])
def test_more_ranks_take_the_algorithm_of_fewer(pattern: Pattern, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen among 64 ranks is what the estimates of 128 choose."""
    _, copies = layer_and_copies("layer", 1)
    case = SharedTraffic(replace(copies, num_ranks=128), pattern, DType.BF16, WEIGHTS).case
    estimated = beside.between_nodes.__wrapped__(case)
    monkeypatch.setattr(beside, "MOST_COMPARED", 64)

    assert estimated is not None and estimated.algorithm == "hierarchical"
    assert beside.between_nodes.__wrapped__(case) == estimated
