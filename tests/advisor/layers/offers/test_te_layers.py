"""Names of Transformer Engine for the products of a graph, and the tables that its flags allow."""

from dataclasses import replace

import pytest

from magus.advisor.layers.joint import JointRuns
from magus.advisor.layers.orders import by_library
from magus.advisor.layers.transformer_engine import BULK, PIPELINE, RING, TeMethods, TeSearch, taken_ticks, te_layers
from magus.compiler import compile_text
from magus.compiler.ir import Scenario
from magus.compiler.planning.parts import issue_order
from magus.compiler.planning.plan import build_plan
from tests.helpers.scenarios.mlp_backward import backward

pytestmark = pytest.mark.usefixtures("compiled_core")

LAYER = """mgs 1
use "nvidia/h100"
system hgx { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload layer on hgx {
  x    = tensor bf16[1024, 1024] shard rows
  wqkv = tensor bf16[1024, 3072] shard cols
  wo   = tensor bf16[1024, 1024] shard rows
  wup  = tensor bf16[1024, 8192] shard cols
  wdn  = tensor bf16[4096, 1024] shard rows
  qkv = gemm(all_gather(norm(x)), wqkv)
  a   = attention(qkv, heads=8, causal=yes)
  r   = add(x, reduce_scatter(gemm(a, wo)))
  u   = gemm(all_gather(norm(r)), wup)
  y   = add(r, reduce_scatter(gemm(swiglu(u), wdn)))
  repeat 4 y as x
}
workload back on hgx { backward layer; keep qkv, a, r, u }
"""
ALL = (("qkv_dgrad", RING, 0), ("fc1_dgrad", PIPELINE, 4))


def graph_of(name: str, rows: int = 1024) -> Scenario:
    graph = compile_text(LAYER.replace("x    = tensor bf16[1024", f"x    = tensor bf16[{rows}")).scenario(name)
    assert graph is not None
    return graph


def test_layers_have_their_names_forward() -> None:
    layers = te_layers(graph_of("layer").workload)

    assert {each.op: each.name for each in layers} == {
        "qkv": "qkv_fprop",
        "r": "proj_fprop",
        "u": "fc1_fprop",
        "y": "fc2_fprop",
    }


def test_layers_have_their_names_backward_with_what_their_weight_gradients_need() -> None:
    layers = {each.name: each for each in te_layers(graph_of("back").workload)}

    assert {name: (each.op, each.wgrad, each.gather) for name, each in layers.items()} == {
        "fc2_dgrad": ("d_y_swiglu", "d_wdn", ""),
        "fc1_dgrad": ("d_u_norm", "d_wup", "u_norm_gathered"),
        "proj_dgrad": ("d_a", "d_wo", ""),
        "qkv_dgrad": ("d_qkv_norm", "d_wqkv", "qkv_norm_gathered"),
    }
    assert layers["qkv_dgrad"].wgrad_name == "qkv_wgrad"


def test_what_is_no_product_has_no_name() -> None:
    text = LAYER.partition("workload")[0] + (
        "workload w on hgx { x = tensor bf16[1024, 1024] shard rows; g = all_gather(x); h = norm(g); k = norm(h) }"
    )
    (scenario,) = compile_text(text).workloads

    assert te_layers(scenario.workload) == ()


def test_by_default_weight_gradients_hide_the_sums_and_activations_what_is_gathered_again() -> None:
    scenario = graph_of("back")
    search = TeSearch(scenario.system, scenario.workload)
    table = search.table(search.defaults())
    order = list(issue_order(scenario.workload, table.choice))

    methods = {each.layer: each.method for each in table.settings}
    assert methods == {
        "fc2_dgrad": RING,
        "fc1_dgrad": BULK,
        "fc1_wgrad": BULK,
        "proj_dgrad": RING,
        "qkv_dgrad": BULK,
        "qkv_wgrad": BULK,
    }
    assert table.flags == ("--tp-comm-overlap",)
    assert order.index("u_norm_gathered") + 1 == order.index("d_u_norm")
    assert order.index("d_u_norm") < order.index("d_u_norm.reduce_scatter") < order.index("d_r_norm_back")
    assert order.index("d_wup") in (order.index("d_u_norm") + 1, order.index("d_u_norm") + 2)


def test_what_is_declared_is_gathered_beside_the_product() -> None:
    scenario = backward()
    search = TeSearch(scenario.system, scenario.workload)

    assert search.table(search.defaults()).choice.starts_with == (("xg", "dx"),)
    without = search.table(TeMethods(bulk_dgrad=False))
    assert not without.choice.starts_with and without.flags[-1] == "--disable-tp-comm-bulk-dgrad"


@pytest.mark.quick(1)
@pytest.mark.parametrize("workload", ["layer", "back"])
def test_the_flags_hold_for_all_layers(workload: str) -> None:
    scenario = graph_of(workload)
    search = TeSearch(scenario.system, scenario.workload)
    methods = [search.defaults(), *search._flags(search.defaults()), *search._methods(TeMethods(scatters_back=ALL))]
    assert len(set(methods)) >= 6

    for each in methods:
        table = search.table(each)
        on = {setting.layer: setting.method for setting in table.settings}
        gathers = [layer.name in on for layer in search.layers if layer.gathers]
        assert len(set(gathers)) == 1 and gathers[0] is ("--disable-tp-comm-overlap-ag" not in table.flags)
        back = [on.get(layer.name) for layer in search.layers if layer.backward and not layer.gathers]
        if "--tp-comm-overlap-rs-dgrad" in table.flags:
            assert set(back) <= {RING, PIPELINE} and not any(name.endswith("_wgrad") for name in on)
        else:
            assert set(back) <= {BULK, None} and len(set(back)) <= 1
        build_plan(scenario.system, scenario.workload, table.choice, 1)


def test_the_search_gets_ever_faster_and_ends_no_slower_than_any_table_of_the_flags() -> None:
    scenario = backward(layers=3)
    runs = JointRuns(scenario.system, scenario.workload)
    search = TeSearch(scenario.system, scenario.workload)

    times = [ticks for _, ticks in search.found(runs.ticks)]

    assert times == sorted(times, reverse=True) and times
    others = [runs.ticks(search.table(each).choice) for each in search._flags(search.defaults())]
    assert times[-1] <= min(ticks for ticks in others if ticks is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "fewer"), [("layer", 8192, True), ("back", 8192, True), ("back", 1024, False)]
)
def test_tables_whose_products_lose_alone_are_left_out_and_none_is_the_best(name: str, rows: int, fewer: bool) -> None:
    scenario = graph_of(name, rows)
    library, _ = by_library(scenario)
    assert library is not None
    runs, search = (
        JointRuns(scenario.system, scenario.workload, quick=True),
        TeSearch(scenario.system, scenario.workload, library=library.choice.modes),
    )

    *_, (best, least) = search.found(runs.ticks)

    tried, others = runs.num_runs, [search.table(each).choice for each in search._flags(search.defaults())]
    times = [ticks for choice in others if (ticks := runs.ticks(choice)) is not None]
    again = runs.ticks(best.choice)
    assert again is not None and least == again <= min(times) * 1.001 and (tried < runs.num_runs or not fewer)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layer", "back"])
def test_fewer_layers_in_a_quick_search_have_the_time_of_more(name: str) -> None:
    scenario = graph_of(name)
    search = TeSearch(scenario.system, scenario.workload)
    choice = search.table(search.defaults()).choice
    ahead = replace(choice, prefetch=1)

    quick, usual = (JointRuns(scenario.system, scenario.workload, quick=quick) for quick in (True, False))
    assert quick.ticks(choice) == pytest.approx(usual.ticks(choice), rel=0.002)
    assert quick.ticks(ahead) == usual.ticks(ahead)  # what is brought ahead shows in as many layers as ever


def test_sms_that_copy_take_their_share_of_the_kernels_while_they_copy() -> None:
    scenario = backward()
    search = TeSearch(scenario.system, scenario.workload)
    settings = search.table(search.defaults()).settings
    rings = [each for each in settings if each.copy_engine]

    assert taken_ticks(scenario.system, scenario.workload, rings) == 0
    two = taken_ticks(scenario.system, scenario.workload, [each for each in settings if each.num_sm])
    one = taken_ticks(scenario.system, scenario.workload, [each for each in settings if each.op == "xg"])
    assert 0 < one < two


def test_the_longer_a_product_the_fewer_sms_copy_beside_it() -> None:
    """Copies need no SMs beyond those with which they end before the product does."""
    chosen = []
    for width in (1024, 8192):
        scenario = backward(width=width)
        search = TeSearch(scenario.system, scenario.workload)
        bulk = [each for each in search.layers if each.wgrad and not each.gathers]
        chosen.append([search.num_sm(each.op, each.wgrad) for each in bulk])

    assert chosen[0] and all(few < many for many, few in zip(*chosen, strict=True))
