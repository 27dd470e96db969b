"""Plans of graphs are exact: those of a file, of drawn graphs, and of layers that repeat."""

import random
from dataclasses import replace

import numpy as np
import pytest

from magus.compiler import compile_file, compile_text
from magus.compiler.ir import OpChoice, OpMode, Scenario, Schedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from magus.runtime import Outcome, RunRefused, carry_out, report
from magus.runtime.memory import Array
from magus.runtime.operands import MODULUS, drawn
from magus.runtime.run import PlanRun
from magus.simcore.cores.engine import run
from magus.simcore.lower.plan import lower
from tests.helpers.marks import thinned
from tests.helpers.oracle.drawn_graphs import draw_graph_plan
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.compiled import several_in
from tests.helpers.scenarios.exchange import CASES, DMA, along, exchange, named
from tests.helpers.scenarios.experts import experts
from tests.helpers.scenarios.mlp_backward import backward, plan_of_layers
from tests.helpers.scenarios.two_batches import two_batches
from tests.helpers.some import some

SUMS = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload back on hgx {{
  x  = tensor bf16[4096, 1024] shard rows
  dy = tensor bf16[4096, 512] shard rows
  d_w = all_reduce(gemm(x.t, dy))
  batch x, dy by 512
}}
schedule mine for back {{ batches 2; {said} }}
"""
PARTS = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload back on hgx {{
  q = tensor bf16[16, {q}] shard {shard}
  k = tensor bf16[16, {q}] shard {shard}
  d = attention_back(norm(q), k, k, q, q, heads=4)
  v  = d.v
  yq = norm(d.q)
  yk = norm(d.k)
  yv = norm(v)
  yt = norm(v.t)
}}
"""
EXPERTS = """
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload moe on hgx {
  x = tensor bf16[512, 256]
  w = tensor bf16[2 * 256, 128]
  y = grouped_gemm(all_to_all(norm(x)), w, rows=[256, 256])
  z = norm(y)
}
schedule apart_ for moe { separate y by dma(3) }
schedule chunked for moe { y = uniform_fused_1d(chunks=8, engine=dma(3)) }
"""
ROOT_ALONE = """
use "nvidia/h100"
system hgx {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
workload sent on hgx {{
  x = tensor bf16[64, 64]
  v = tensor bf16[64, 64]
  b = broadcast(all_reduce(x))
  y = gemm(b, v)
  z = norm(y)
}}
schedule mine for sent {{ b = direct(chunks=8, engine=sm(4), transfer={way}) }}
"""
UNEVEN = """mgs 1
use "nvidia/h100"
system node { gpus RANKS x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on node {
  x   = tensor bf16[ROWS, 1024]
  wup = tensor bf16[1024, 64 * RANKS] shard cols
  wdn = tensor bf16[64 * RANKS, 1024] shard rows
  u   = gemm(norm(x), wup)
  y   = add(x, all_reduce(gemm(gelu(u), wdn)))
  repeat 2 y as x
}
schedule cut for layer { y = pipelined(chunks=2 * RANKS, engine=sm(8)) }
schedule halves for layer { separate y by sm(8) }
schedule added for layer { separate y by sm(8); handoff chunks }
"""
LAYERS = [*sorted((ROOT / "examples" / "layers").glob("*.mgs")), ROOT / "examples" / "papers" / "layers.mgs"]


@pytest.fixture(scope="module")
def back() -> Scenario:
    return backward()


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["pairs", "late", "ring", "serial"])
def test_every_schedule_of_a_backward_pass(back: Scenario, name: str) -> None:
    choice = {each.name: each for each in (*back.schedules, SERIAL)}[name]
    graph, plan = plan_of_layers(back, choice, 3)

    report = carry_out(back.system, graph, plan)

    assert [run.outcome for run in report.runs] == [Outcome.EXACT] * 3, report.runs[-1].sentences
    assert (report.layers, report.num_ranks, report.schedule) == (3, 4, name)
    assert report.kernels >= 3 * 4 * 5


def test_batches() -> None:
    scenario = two_batches()
    reports = [
        carry_out(scenario.system, *plan_of_layers(scenario, choice, 2), seeds=(0, 1)) for choice in scenario.schedules
    ]

    assert [report.exact for report in reports] == [True, True]


@pytest.mark.quick(1)
@pytest.mark.parametrize("routed", ["", "routing=power_law(1.2, seed=1)"])
@pytest.mark.parametrize("said", ["groups of 1, 5, 2; separate t, z by dma(3)", "batches 2; groups 4; handoff whole"])
def test_experts_in_groups(said: str, routed: str) -> None:
    """What adds the rows that come back takes those of each group, as they are there."""
    scenario = experts(said, layers=2, routed=routed)
    graph, plan = plan_of_layers(scenario, scenario.schedules[0], 2)
    run = PlanRun(scenario.system, graph, plan, 0, detail=2)

    assert run.report().outcome is Outcome.EXACT
    merge = "z_merge@2" if plan.cut.batches == 1 else "z_merge[1]@2"
    slots = run.problems[merge].slots.values()
    assert len({slot.tensor for slot in slots}) == len({id(slot.links[0].sheet) for slot in slots}) == len(slots)
    assert len(slots) == len(plan.cut.groups)


@pytest.mark.parametrize("way", ["get", "put"])
def test_a_rank_from_which_others_get_what_it_has_waits_for_that(way: str) -> None:
    """It copies nothing itself; who takes the result there waits for what the collective waits for."""
    (scenario,) = compile_text(ROOT_ALONE.format(way=way)).workloads
    graph, plan = plan_of_layers(scenario, scenario.schedules[0], 1)

    assert carry_out(scenario.system, graph, plan).exact
    lowered = lower(scenario.system, plan, unit_bytes=8192, fold=False)
    result = run(lowered.program)
    made, taken = (lowered.ops[[part.name for part in plan.parts].index(name)] for name in ("b_all_reduce", "y"))
    at_root = [op for op in taken if lowered.program.op_rank[op] == 0]
    summed = [op for op in made if lowered.program.op_rank[op] == 0]
    assert max(result.op_done[op] for op in summed) <= min(result.op_done[op] for op in at_root)


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", thinned(range(150), 10))
def test_drawn_graphs(seed: int) -> None:
    system, graph, plan = draw_graph_plan(random.Random(f"run {seed}"))

    report = carry_out(system, graph, plan, seeds=(seed % 3,))

    assert report.exact, report.runs[-1].sentences


@pytest.mark.slow
@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_every_schedule_of_the_examples(path: object) -> None:
    found = [
        carry_out(one.system, *plan_of_layers(one, choice, 2))
        for one in several_in(compile_file(str(path)))
        for choice in (*one.schedules, SERIAL)
    ]

    assert len(found) > 2
    assert all(report.exact for report in found)


def test_two_layers_are_those_of_plain_numpy() -> None:
    """Every row and column is there, and every op is computed on whole tensors of all ranks together."""
    scenario, seed = backward(m=64, width=64), 3
    graph, plan = plan_of_layers(scenario, scenario.schedules[1], 2)
    run = PlanRun(scenario.system, graph, plan, seed, detail=None)

    assert run.report().outcome is Outcome.EXACT

    def declared(name: str, rows: int, cols: int) -> list[Array]:
        """The tensor of each rank."""
        return [drawn(seed, f"{name} of {rank}", np.arange(rows), np.arange(cols)) for rank in range(4)]

    dy, x = np.vstack(declared("dy", 16, 64)), np.vstack(declared("x", 16, 64))
    u, h = declared("u", 64, 128), declared("h", 64, 64)
    wdn, wup = declared("wdn", 64, 64), declared("wup", 64, 128)
    for layer in ("", "@2"):
        op = f"du{layer}"
        by_u = drawn(seed, f"{op} takes 0", np.arange(128), np.arange(128))
        by_dh = drawn(seed, f"{op} takes 1", np.arange(64), np.arange(128))
        dh = [dy @ w.T % MODULUS for w in wdn]
        du = [(here @ by_u + there @ by_dh) % MODULUS for here, there in zip(u, dh, strict=True)]
        dx = np.sum([each @ w.T for each, w in zip(du, wup, strict=True)], axis=0) % MODULUS
        for rank in range(4):
            memories = {name: run.problems[f"{name}{layer}"].memories[rank] for name in ("dh", "d_wdn", "du", "d_wup")}
            wanted = {"dh": dh[rank], "d_wdn": h[rank].T @ dy, "du": du[rank], "d_wup": x.T @ du[rank]}
            for name, memory in memories.items():
                output = memory.outputs[-1]
                assert output is not None
                assert np.array_equal(np.vstack(list(output.values)) % MODULUS, wanted[name] % MODULUS), (name, layer)
            sums = run.problems[f"dx{layer}.reduce_scatter"].memories[rank].final(rank)
            assert np.array_equal(sums % MODULUS, dx[16 * rank : 16 * rank + 16])
        dy = np.asarray(dx)


@pytest.mark.parametrize(("q", "shard"), [(64, "cols"), (32, "rows")])
@pytest.mark.parametrize("detail", [None, 2])
def test_parts_of_a_result_are_its_columns(q: int, shard: str, detail: int | None) -> None:
    """Queries, keys and values side by side at each rank, wherever they are taken."""
    (scenario,) = compile_text(PARTS.format(q=q, shard=shard)).workloads
    graph, plan = plan_of_layers(scenario, SERIAL, 1)
    run = PlanRun(scenario.system, graph, plan, 0, detail)

    assert run.report().outcome is Outcome.EXACT
    for rank in range(4):
        output = run.problems["d"].memories[rank].outputs[-1]
        assert output is not None
        whole = output.values[0] % MODULUS
        taken = [run.problems[op].slots[0, 0].wanted(rank)[0] for op in ("yq", "yk", "yv")]
        assert np.array_equal(np.hstack(taken), whole), rank
        assert len({values.tobytes() for values in taken}) == 3
        assert np.array_equal(run.problems["yt"].slots[0, 0].wanted(rank)[0], taken[2].T)


def test_numbers_stay_small_over_many_layers(back: Scenario) -> None:
    graph, plan = plan_of_layers(back, SERIAL, 6)
    run = PlanRun(back.system, graph, plan, 0, detail=1)

    assert run.report().outcome is Outcome.EXACT
    output = run.problems["d_wup@6"].memories[0].outputs[0]
    assert output is not None and 0 < np.abs(output.values).max() < 2**53


def test_ranks_with_loads_and_too_many_steps_are_refused(back: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_STEPS", 10)
    with pytest.raises(RunRefused) as caught:
        carry_out(back.system, *plan_of_layers(back, SERIAL, 1))
    assert "10 at most are carried out" in caught.value.rejection.message


def test_kernels_beside_collectives_that_are_no_products_are_refused(back: Scenario) -> None:
    graph, plan = plan_of_layers(back, SERIAL, 1)
    dh, du = plan.part("dh"), plan.part("du")
    odd = replace(dh, shape=replace(dh.shape, gemm=None, kernel=du.shape.kernel))
    with pytest.raises(RunRefused, match="not carried out with real data"):
        carry_out(back.system, graph, replace(plan, parts=(odd, *plan.parts[1:])))


def test_experts_behind_a_dispatch_that_is_apart() -> None:
    (scenario,) = compile_text(EXPERTS).workloads
    for choice in some(scenario.schedules):
        graph, plan = plan_of_layers(scenario, choice, 1)
        run = PlanRun(scenario.system, graph, plan, 0, detail=2)

        assert run.report().outcome is Outcome.EXACT
        if choice.name == "apart_":
            delivered, weights = (run.problems["y"].slots[0, number] for number in range(2))
            assert len(delivered.links) == 1
            assert (delivered.rows.cuts[-1], weights.tensor, weights.links) == (512, "w", ())


@pytest.mark.parametrize("said", ["", "separate d_w by dma(3)", "d_w = pipelined(chunks=4, engine=dma(3))"])
def test_sums_over_batches_that_ranks_add_up_once(said: str) -> None:
    (found,) = compile_text(SUMS.format(said=said)).workloads
    graph, plan = plan_of_layers(found, found.schedules[0], 1)

    report = carry_out(found.system, graph, plan)

    assert [run.outcome for run in report.runs] == [Outcome.EXACT] * 3, report.runs[-1].sentences


@pytest.mark.quick(3)
@pytest.mark.parametrize(("rows", "ranks"), [(1, 4), (6, 4), (5, 3), (12, 6)])
@pytest.mark.parametrize("index", range(3))
def test_rows_that_do_not_divide_among_the_ranks(rows: int, ranks: int, index: int) -> None:
    found = compile_text(UNEVEN.replace("ROWS", str(rows)).replace("RANKS", str(ranks))).scenario()
    assert found is not None
    report = carry_out(found.system, *plan_of_layers(found, found.schedules[index], 2), seeds=range(1))

    assert {run.outcome for run in report.runs} == {Outcome.EXACT}


@pytest.mark.quick(4)
@pytest.mark.parametrize(("kind", "choice"), CASES, ids=named)
def test_a_gemm_cut_as_the_exchange_before_it(kind: str, choice: OpChoice) -> None:
    scenario = exchange(kind)
    graph, plan = plan_of_layers(scenario, along(choice), min(2, scenario.workload.num_layers))

    report = carry_out(scenario.system, graph, plan, seeds=(0, 1))

    assert report.exact, report.runs[-1].sentences


@pytest.mark.parametrize("kind", ["below", "beside"])
def test_a_gemm_takes_all_that_an_exchange_brings(kind: str) -> None:
    """Also what lies side by side: without the wait for copies, they are missed."""
    scenario = exchange(kind)
    whole = Schedule("whole", (OpMode("y", OpChoice("uniform_fused_1d", 16, DMA)),))
    graph, plan = plan_of_layers(scenario, whole, 1)

    assert carry_out(scenario.system, graph, plan).exact
