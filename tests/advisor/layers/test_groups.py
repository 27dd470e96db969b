"""The search of layers with experts in groups, and what stands beside the first and the last of them."""

import pytest

from magus.advisor.layers.joint import JointRuns
from magus.advisor.layers.orders import group_by_group
from magus.advisor.layers.search import JointSearch
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import WorkloadCut
from magus.compiler.planning.groups import cut_up
from magus.compiler.planning.plan import build_plan
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.helpers.scenarios.experts import experts

TEXT = """
use "nvidia/gb200"
system node {{ gpus 4 x GB200; fabric switch(nvswitch, link=nvlink) }}
workload moe on node {{
  x  = tensor bf16[4 * 4096, 4096] shard rows
  w1 = tensor fp8[64 * 4096, 4096] shard rows
  w2 = tensor fp8[64 * 2048, 4096] shard rows
  t = dispatch(x, experts=64, top=4, type=fp8)
  z = combine(grouped_gemm(swiglu(grouped_gemm(t, w1)), w2), type=bf16)
  y = norm(z)
}}
{said}
"""


def searched(said: str = "", routed: str = "") -> JointSearch:
    text = TEXT.format(said=said).replace("top=4", f"top=4{routed}")
    scenario = compile_text(text).scenario()
    assert scenario is not None
    search = JointSearch(scenario, JointRuns(scenario.system, scenario.workload), climbs=False)
    search.runs.begin(SERIAL, lambda: False)
    search.run()
    return search


def best_by_groups(search: JointSearch) -> dict[tuple[int, ...], int]:
    found = dict[tuple[int, ...], int]()
    for choice in reversed(search.best_searched()):
        found[choice.groups] = search.found[choice]
    return found


@pytest.mark.slow
def test_more_and_more_groups_until_they_are_slower() -> None:
    search = searched()
    found = best_by_groups(search)

    assert {(), (8, 8), (3, 10, 3), (2, 6, 6, 2)} <= set(found)
    best = search.best_searched()[0]
    assert best.groups == (2, 6, 6, 2) and found[best.groups] < 0.98 * found[()]
    assert max(map(len, found)) == 6 and (1, 2, 3, 2, 3, 2, 2, 1) not in found  # six are slower than four
    space = search.space_of(best)
    assert space is not None and space.cut == best.cut


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ("groups 1, 2", {(), (8, 8)}),
        ("groups 1", {()}),
        ("groups 4", {(4, 4, 4, 4), (2, 6, 6, 2)}),
    ],
)
def test_a_file_says_how_many_are_compared(said: str, groups: set[tuple[int, ...]]) -> None:
    assert set(best_by_groups(searched(f"explore moe {{ engine sm(16); {said} }}"))) == groups


@pytest.mark.slow
def test_experts_with_different_numbers_of_rows_are_in_groups_too() -> None:
    assert {(), (8, 8), (3, 10, 3)} <= set(best_by_groups(searched(routed=", routing=power_law(1.2, seed=1)")))


@pytest.mark.parametrize(("said", "code"), [("groups 17", "MGS304"), ("groups 33", "MGS307"), ("groups 0", "MGS307")])
def test_what_is_not_compared(said: str, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        compile_text(TEXT.format(said=f"explore moe {{ {said} }}"))


def test_kernels_that_need_no_experts_are_at_both_ends() -> None:
    """The shared expert is one kernel here: beside the first dispatch, or beside the last combine."""
    scenario, cut = experts(), WorkloadCut(groups=(2, 4, 2))
    workload = cut_up(scenario.workload, cut)
    plans = [
        [part.name for part in build_plan(scenario.system, scenario.workload, choice).parts]
        for choice in group_by_group(workload, {}, "joint", cut)
    ]
    late, early = plans

    assert early.index("t[0]") < early.index("s") < early.index("t[1]")
    assert late.index("z[2]") < late.index("s") < late.index("z_merge")
    assert [name for name in early if name != "s"] == [name for name in late if name != "s"]
