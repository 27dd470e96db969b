"""Experts in groups: each weight is read once, rows go where their experts are, and every sum is as without them."""

import re

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import ElementwiseShape, GroupedGemmShape, Scenario, Schedule, Workload, WorkloadCut
from magus.compiler.planning.build import schedule_block
from magus.compiler.planning.groups import cut_up, names_in
from magus.compiler.planning.plan import build_plan
from tests.helpers.scenarios.experts import HEAD, experts

SIZES = (2, 5, 1)


def rows_moved(graph: Workload, op: str) -> int:
    moved = graph.op(op).shape.moved
    assert moved is not None
    return moved.rows


def rows_of_experts(graph: Workload, op: str) -> tuple[int, ...]:
    kernel = graph.op(op).shape.kernel
    assert isinstance(kernel, GroupedGemmShape)
    return kernel.rows


def test_experts_and_their_weights_are_shared_out() -> None:
    whole = experts().workload
    cut = cut_up(whole, WorkloadCut(groups=SIZES))

    for op in ("h", "z_grouped_gemm"):
        assert sum((rows_of_experts(cut, f"{op}[{k}]") for k in range(3)), ()) == rows_of_experts(whole, op)
    sizes = {tensor.name: tensor.rows for tensor in cut.tensors}
    assert [sizes[f"w1[{k}]"] for k in range(3)] == [4 * 256 * each for each in SIZES]
    assert "w1" not in sizes and sizes["x"] == 4 * 64


def test_rows_go_to_each_rank_with_an_expert_of_the_group() -> None:
    """Of 64 rows with 2 of 32 experts each, 8 of a rank: n of these are on 4 (1 - C(32 - n, 2) / C(32, 2)) ranks."""
    cut = cut_up(experts().workload, WorkloadCut(groups=SIZES))

    assert [rows_moved(cut, f"t[{k}]") for k in range(3)] == [32, 76, 16]
    assert [rows_moved(cut, f"z[{k}]") for k in range(3)] == [32, 76, 16]
    assert rows_moved(experts().workload, "t") == 116


def test_rows_are_dealt_added_and_merged_as_many_as_they_are() -> None:
    whole = experts().workload
    cut = cut_up(whole, WorkloadCut(groups=SIZES))
    kernels = {op.name: op.shape.kernel for op in (*whole.ops, *cut.ops)}

    def figures(op: str) -> tuple[int, int]:
        kernel = kernels[op]
        assert isinstance(kernel, ElementwiseShape)
        return kernel.num_elements, kernel.operand_bytes

    dealt = [figures(f"t_expand[{k}]") for k in range(3)]
    assert sum(made for made, _ in dealt) == figures("t_expand")[0] == 64 * 2 * 256
    assert [taken for _, taken in dealt] == [rows * 256 for rows in (32, 76, 16)]
    added = [figures(f"z_collapse[{k}]") for k in range(3)]
    assert [made for made, _ in added] == [rows * 256 for rows in (32, 76, 16)]
    assert sum(taken for _, taken in added) == figures("z_collapse")[1]
    assert figures("z_merge") == (64 * 256, (32 + 76 + 16) * 256 * 2)
    assert [read.made_by for read in cut.op("z_merge").reads] == ["z[0]", "z[1]", "z[2]"]


def test_each_dispatch_stands_before_the_kernels_of_the_group_before() -> None:
    scenario = experts("groups of 2, 5, 1")
    parts = [part.name for part in build_plan(scenario.system, scenario.workload, scenario.schedules[0]).parts]
    chain = ("t_expand", "h", "z_swiglu", "z_grouped_gemm", "z_collapse", "z")

    assert parts == [
        *("t_norm", "t_cast", "t[0]", "s"),
        *("t[1]", *(f"{op}[0]" for op in chain)),
        *("t[2]", *(f"{op}[1]" for op in chain)),
        *(f"{op}[2]" for op in chain),
        *("z_merge", "y"),
    ]


def test_in_batches_too() -> None:
    names = names_in(experts().workload, WorkloadCut(2, (4, 4)))
    cut = cut_up(experts().workload, WorkloadCut(2, (4, 4)))

    assert names["h"] == ("h[0, 0]", "h[0, 1]", "h[1, 0]", "h[1, 1]")
    assert (names["s"], names["y"]) == (("s[0]", "s[1]"), ("y[0]", "y[1]"))
    assert {op.name for op in cut.ops} == {name for each in names.values() for name in each}
    assert rows_of_experts(cut, "h[1, 0]") == (8,) * 4


BACKWARD = "{head}workload back on node {{ backward moe; keep {keep} }}\n"


@pytest.mark.parametrize("keep", ["t, h", "x"])
def test_gradients_of_weights_are_by_groups(keep: str) -> None:
    """Also what is made again for them alone, from rows that were held."""
    scenario = compile_text(BACKWARD.format(head=HEAD.format(said=""), keep=keep)).workloads[1]
    cut = cut_up(scenario.workload, WorkloadCut(groups=(6, 2)))

    assert rows_of_experts(cut, "d_w2[0]") == (128,) * 6 and rows_of_experts(cut, "d_w2[1]") == (128,) * 2
    sizes = {tensor.name: tensor.rows for tensor in cut.tensors}
    assert [sizes[f"d_w2[{k}]"] for k in range(2)] == [4 * 128 * 6, 4 * 128 * 2]
    again = [op.name for op in cut.ops if op.name.startswith("z_swiglu")]
    assert again == ["z_swiglu[0]", "z_swiglu[1]"]


@pytest.mark.parametrize(
    ("block", "groups"), [("groups 3", (2, 3, 3)), ("groups of 1, 7", (1, 7)), ("groups 1", ()), ("groups 8", (1,) * 8)]
)
def test_a_schedule_says_how_many_or_of_what_size(block: str, groups: tuple[int, ...]) -> None:
    (found,) = experts(block).schedules

    assert found.groups == groups
    written = schedule_block(found, "moe")
    assert ("groups" in written) is bool(groups)
    assert compile_text(HEAD.format(said="") + written).workloads[0].schedules == (found,)


UNEVEN = (
    "routing=power_law(1.2, seed=1)",
    "routing=sampled(1.9, seed=2)",
    "routing=power_law(1.2, seed=1), placed=greedy",
    f"routing=loads([{', '.join(['26', '6'] * 16)}])",
)


@pytest.mark.parametrize("routed", UNEVEN)
def test_uneven_rows_go_to_the_group_of_their_expert(routed: str) -> None:
    whole = experts(routed=routed).workload
    cut = cut_up(whole, WorkloadCut(groups=SIZES))
    dealt = rows_of_experts(whole, "h")
    assert len(set(dealt)) > 1

    firsts = [sum(SIZES[:k]) for k in range(3)]
    assert [rows_of_experts(cut, f"h[{k}]") for k in range(3)] == [
        dealt[first : first + size] for first, size in zip(firsts, SIZES, strict=True)
    ]
    rows = {tensor.name: tensor.rows for tensor in cut.tensors}
    for k in range(3):
        kernel = cut.op(f"z_swiglu[{k}]").shape.kernel
        assert isinstance(kernel, ElementwiseShape)
        assert kernel.num_elements == sum(rows_of_experts(cut, f"h[{k}]")) * 128
        assert rows[f"w1[{k}]"] == 4 * 256 * SIZES[k] and rows[f"w2[{k}]"] == 4 * 128 * SIZES[k]
    sent = [rows_moved(cut, f"t[{k}]") for k in range(3)]
    assert max(sent) < rows_moved(whole, "t") <= sum(sent)


def test_a_stride_spreads_rows_over_groups_as_over_ranks() -> None:
    """2 experts of a row are 16 of 32 apart, on 2 of 4 ranks; of 8 experts of a rank it has one, in one group."""
    cut = cut_up(experts(routed="routing=stride").workload, WorkloadCut(groups=SIZES))

    assert rows_moved(experts(routed="routing=stride").workload, "t") == 64 * 2
    assert [rows_moved(cut, f"t[{k}]") for k in range(3)] == [64 * 2 * size // 8 for size in SIZES]


def test_names_stand_for_groups() -> None:
    (found,) = experts("batches 2; groups 2; separate t[0], z[1, 1] by dma(3); priority s[1] low").schedules

    assert [mode.op for mode in found.modes] == ["t[0, 0]", "t[0, 1]", "z[1, 1]"]
    assert found.low == ("s[1]",)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("groups 9", "MGS304 error: each rank has 8 experts behind t, which do not make up 9 groups"),
        ("groups of 4, 5", "MGS304 error: each rank has 8 experts behind t, which do not make up groups of 4, 5"),
        ("groups 64", "MGS307"),
        ("groups of 8", "MGS307 error: experts are in 2 to 32 groups"),
        ("groups of 8, 0", "MGS307"),
        ("groups", "MGS116"),
        ("groups 2, 4", "MGS1"),
        ("groups 2; order h[2]", "MGS307"),
        ("groups 2; order h[0, 0]", "MGS203 error: h is not in batches and groups"),
        ("groups 2; order s[0]", "MGS203 error: s is not in batches, nor in groups"),
        ("groups 2; order h[1], t[1]", "MGS503"),
    ],
)
def test_what_is_refused(block: str, message: str) -> None:
    with pytest.raises(CompileError, match=f"(?s){re.escape(message)}"):
        experts(block)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = norm(x)", "MGS209 error: moe has no dispatch, whose experts could be in groups"),
        (
            f"t = dispatch(x, experts=32, top=2, routing=loads({[256] * 2 + [0] * 30}))\n  y = grouped_gemm(t, w1)",
            "MGS304 error: group 1 of the experts behind t has no rows at the hottest rank",
        ),
        (
            "t = dispatch(x, experts=32, top=2)\n  y = norm(gemm(t, v))",
            "MGS520 error: y_gemm is GEMM of rows of experts, which is not computed by groups",
        ),
        (
            "c = cast(w1, type=bf16)\n  t = dispatch(x, experts=32, top=2)\n  y = grouped_gemm(t, c)\n  d = norm(c)",
            "MGS520 error: y takes of c what others take too",
        ),
        (
            "t = dispatch(x, experts=32, top=2)\n  d = dispatch(t, experts=32, top=2)\n  y = norm(d)",
            "MGS520 error: d dispatches rows of experts",
        ),
        (
            "t = dispatch(x, experts=32, top=2)\n  y = add(e, t)\n  repeat 2 y as e",
            "MGS520 error: y has the rows of experts",
        ),
    ],
)
def test_workloads_without_such_groups(body: str, message: str) -> None:
    head = HEAD.partition("  t = ")[0].format(said="").replace("fp8", "bf16").replace("s1", "v")
    tensors = "  e = tensor bf16[4 * 128, 256] shard rows\n"
    with pytest.raises(CompileError, match=f"(?s){re.escape(message)}"):
        compile_text(f"{head}{tensors}  {body}\n}}\nschedule mine for moe {{ groups 2 }}\n")


def test_one_group_is_all_of_it() -> None:
    scenario: Scenario = experts()

    assert cut_up(scenario.workload, Schedule("one").cut) is scenario.workload
