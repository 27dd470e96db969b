"""Outlines are the plans that they say: those of the templates, small ones step by step, and any without faults."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import EngineChoice, OpCase, OpPlan, Reduction, Step, TileGroup, Transfer, WrittenPlan
from magus.compiler.outline.outline import By, Grouping, Outline, Split, SplitAxis
from magus.compiler.outline.write import rejections_on, written_out
from magus.compiler.planfile.write import plan_text
from magus.compiler.planning.build import build_op_plan, declared
from magus.compiler.verify.check import check_plan
from magus.simcore import simulate_op
from tests.helpers.marks import examples
from tests.helpers.scenarios.outlines import DMA3, ROWS, SM8, outlines, read, scenarios
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs
from tests.helpers.some import some

HARDWARE = 'use "amd/mi300x"\nsystem node { gpus 4 x MI300X; fabric full_mesh(xgmi) }\n'
BODIES: Mapping[str, str] = {
    "AG": "x = tensor bf16[1024, 256] shard rows; w = tensor bf16[256, 512] shard cols; y = gemm(all_gather(x), w)",
    "A2A": "x = tensor bf16[1024, 256]; w = tensor bf16[256, 512]; "
    "y = gemm(all_to_all(x, rows=[512, 256, 128, 128]), w)",
    "RS": "h = tensor bf16[1024, 512] shard cols; w = tensor bf16[512, 256] shard rows; y = reduce_scatter(gemm(h, w))",
    "AR": "h = tensor bf16[1024, 512] shard cols; w = tensor bf16[512, 256] shard rows; y = all_reduce(gemm(h, w))",
    "GEMM+A2A": "h = tensor bf16[1024, 512]; w = tensor bf16[512, 256]; y = all_to_all(gemm(h, w))",
    "GEMM+A2A+GEMM": "h = tensor bf16[1024, 512]; w = tensor bf16[512, 256]; v = tensor bf16[256, 128]; "
    "y = gemm(all_to_all(gemm(h, w)), v)",
    "side by side": "h = tensor bf16[1024, 512]; w = tensor bf16[512, 1024] shard cols; v = tensor bf16[1024, 128]; "
    "y = gemm(all_to_all(gemm(h, w)), v)",
    "gather": "x = tensor bf16[1024, 256] shard rows; y = all_gather(x)",
    "sum": "x = tensor bf16[1024, 256]; y = all_reduce(x)",
    "beside": "a = tensor bf16[256, 256]; b = tensor bf16[256, 256]; x = tensor bf16[1024, 256] shard rows; "
    "y = gemm(a, b); g = all_gather(x)",
}
GATHERS, SUMS, CHAINS = ("AG", "A2A"), ("RS", "AR"), ("GEMM+A2A", "GEMM+A2A+GEMM")
OVERLAPPED = (*GATHERS, *SUMS, *CHAINS, "side by side")
# A template, the same in outline, and the workloads for which it is.
SAME = [
    ("serial()", "group own together, together", (*GATHERS, *CHAINS)),
    ("serial()", "group own together, together; sums behind", SUMS),
    ("serial(engine=sm(8))", "group own together, together; move by sm(8)", GATHERS),
    ("serial(algorithm=ring)", "group own together, together; move ring", ("AG",)),
    ("shard_p2p()", "group by peer; move one at a time", (*GATHERS, *CHAINS)),
    ("shard_p2p()", "group by peer; move one at a time; sums behind", SUMS),
    ("uniform_fused_1d(chunks=16)", "split rows into 4; group own together", OVERLAPPED),
    ("hetero_fused_1d(chunks=16)", "split rows into 4", OVERLAPPED),
    ("hetero_fused_1d(chunks=4)", "split shards", OVERLAPPED),
    (
        "hetero_fused_1d(chunks=8, engine=sm(8), protocol=ll)",
        "split rows into 2; move by sm(8) protocol ll",
        ("AG", "RS"),
    ),
    ("hetero_fused_1d(chunks=8, kernel=persistent)", "split rows into 2; kernel persistent; sync poll", ("AG",)),
    ("hetero_fused_1d(chunks=8, launch=graph)", "split rows into 2; launch graph", ("AG",)),
    ("hetero_fused_1d(chunks=8, order=reversed)", "split rows into 2; order peers reversed", OVERLAPPED),
    ("hetero_fused_1d(chunks=8, order=absolute)", "split rows into 2; order peers absolute", ("AG", "RS")),
    ("hetero_fused_1d(chunks=8, order=large_first)", "split rows into 2; order peers large_first", ("A2A",)),
    ("hetero_fused_1d(chunks=16, transfer=get, depth=2)", "split rows into 4; move get depth 2", ("AG",)),
    (
        "hetero_unfused_1d(chunks=16, streams=3)",
        "split rows into 4; group by block; streams 3",
        (*GATHERS, *SUMS, *CHAINS),
    ),
    ("hetero_unfused_1d(chunks=16, streams=1)", "split rows into 4; group by block", ("side by side",)),
    ("uniform_fused_2d(chunks=16)", "split cols into 4; group own together", OVERLAPPED),
    (
        "bespoke(parts=[[128, 64], [0, 64], [128, 128]], streams=1)",
        "split rows 64, 64, 128; split own rows 128, 0, 128; group own together",
        ("AG", "RS", "AR"),
    ),
    ("pipelined(chunks=8, algorithm=ring)", "split rows into 2; move ring; group by block", ("AG", *SUMS)),
    ("pipelined(chunks=8, algorithm=double_ring)", "split rows into 2; move double_ring; group by hop", ("AG",)),
    ("pipelined(chunks=4, algorithm=halving_doubling)", "move halving_doubling; group by hop", ("AG",)),
    ("ring(chunks=16)", "split rows into 4; move ring", ("gather", "sum")),
    ("double_tree(chunks=8, engine=sm(8))", "split rows into 2; move double_tree by sm(8)", ("sum",)),
    ("one_shot(chunks=8)", "split rows into 2; move one_shot", ("sum",)),
    ("bulk(chunks=16)", "split rows into 4", ("beside",)),
]


def both(body: str, template: str, outline: str) -> tuple[OpCase, OpPlan, OpPlan]:
    more = f"schedule template for w = {template}\nschedule outline for w {{ {outline} }}\n"
    scenario = compile_text(f"{HARDWARE}workload w on node {{ {body} }}\n{more}").scenario().case
    first, second = (declared(scenario, named) for named in scenario.schedules)
    return scenario, first, second


def queues(steps: tuple[Step, ...]) -> dict[object, list[object]]:
    """What runs one after the other, without the names of steps; the order of tiles in a kernel is nobody's concern."""
    found: dict[object, list[object]] = {}
    for step in steps:
        match step:
            case Transfer():
                what = (step.direction, step.region, step.peer, step.lane, step.reduce, step.reach, len(step.after))
                found.setdefault("transfers", []).append(what)
            case TileGroup():
                tiles = frozenset(step.regions), step.k, step.accumulate, len(step.after)
                found.setdefault(("kernels", step.stream), []).append(tiles)
            case Reduction():
                found.setdefault(("sums", step.stream), []).append((step.region, step.num_parts, len(step.after)))
    return found


@pytest.mark.parametrize(
    ("template", "outline", "name"), [(one, other, name) for one, other, names in SAME for name in names]
)
def test_a_template_and_the_same_in_outline(template: str, outline: str, name: str) -> None:
    scenario, first, second = both(BODIES[name], template, outline)

    assert second.expression == "outline"
    assert [queues(first.steps_of(r)) for r in range(4)] == [queues(second.steps_of(r)) for r in range(4)]
    assert (first.engine, first.tactics, first.compute_sms) == (second.engine, second.tactics, second.compute_sms)
    assert first.staging_bytes == second.staging_bytes and first.symmetric == second.symmetric
    one, other = simulate_op(scenario, first), simulate_op(scenario, second)
    assert one.makespan_ticks == other.makespan_ticks


@pytest.mark.parametrize(
    ("template", "outline", "name"),
    [
        ("pipelined(chunks=8, algorithm=double_ring)", "split rows into 2; move double_ring; group by hop", "RS"),
        ("pipelined(chunks=8, algorithm=double_ring)", "split rows into 2; move double_ring; group by hop", "AR"),
        ("pipelined(chunks=4, algorithm=halving_doubling)", "move halving_doubling; group by hop", "RS"),
        ("pipelined(chunks=4, algorithm=double_tree)", "move double_tree; group own together, by hop", "AR"),
    ],
)
def test_a_pipeline_with_sums_takes_as_long_in_outline(template: str, outline: str, name: str) -> None:
    """Between transfers that nothing holds up the order of issue is free."""
    scenario, first, second = both(BODIES[name], template, outline)

    assert len(first.steps) == len(second.steps)
    assert simulate_op(scenario, first).makespan_ticks == simulate_op(scenario, second).makespan_ticks


@pytest.mark.parametrize(
    ("name", "outline"),
    [
        ("AG", "split rows 64, 192; move by sm(8) protocol ll; group by block; streams 2; order own last"),
        ("A2A", "split rows into 2; move get depth 1; order peers large_first"),
        ("RS", "split rows at 100; split own rows 200, 56; group own together; kernel persistent; sync poll per tile"),
        ("AR", "split cols into 2; move double_tree; launch graph"),
        ("GEMM+A2A", "group own together, together; move by sm(8)"),
        ("sum", "split rows 7, 249; move halving_doubling by sm(8)"),
    ],
)
def test_an_outline_written_out_is_the_same_plan(name: str, outline: str) -> None:
    workload = f"workload w on node {{ {BODIES[name]} }}\n"
    scenario = compile_text(f"{HARDWARE}{workload}schedule s for w {{ {outline} }}").scenario().case
    schedule = declared(scenario, scenario.schedules[0])

    text = plan_text(scenario, schedule, "s")

    again = compile_text(f"{HARDWARE}{workload}{text}").scenario().case
    assert again.schedules == scenario.schedules and declared(again, again.schedules[0]) == schedule


def said(scenario: OpCase, text: str) -> list[str]:
    """The steps of an outline in short: what moves where, what is computed, and what each waits for."""
    plan = written_out(scenario, read(scenario, f"schedule s for w {{ {text} }}"))
    assert check_plan(scenario, build_op_plan(scenario, plan, "s")) == ()
    return [_said(step) for step in plan.steps]


def _said(step: Step) -> str:
    after = f" after {' '.join(step.after)}" if step.after else ""
    match step:
        case Transfer():
            return f"{step.name} {step.direction.value} {step.region.owner}[{step.region.rows}] {step.peer}{after}"
        case TileGroup():
            tiles = " ".join(f"{region.owner}[{region.rows}]" for region in step.regions)
            adds = " adds" if step.accumulate else ""
            return f"{step.name} compute {tiles} k {step.k} in {step.stream}{after}{adds}"
        case Reduction():
            return f"{step.name} sum {step.region.owner}[{step.region.rows}] in {step.stream}{after}"


def test_an_uneven_split_of_what_is_gathered() -> None:
    found = said(ag_gemm(24, 64, 64, ranks=2), "split rows 2, 4, 6; group own alone, pieces 0..1 together, piece 2")

    assert found == [
        "own compute 0[0:12] k 0:64 in 0",
        "x0_1 put 0[0:2] 1",
        "x1_1 put 0[2:6] 1",
        "g0 compute 1[0:6] k 0:64 in 0 after s_x0_1 s_x1_1",
        "x2_1 put 0[6:12] 1",
        "g1 compute 1[6:12] k 0:64 in 0 after s_x2_1",
    ]


def test_an_uneven_split_of_what_is_summed() -> None:
    found = said(gemm_rs(24, 64, 64, ranks=2), "split rows at 8; group own together; order pieces 1, 0; streams 2")

    assert found == [
        "g0 compute 1[8:12] 0[8:12] k 0:32 in 0",
        "x0_1 put 1[8:12] 1 after g0",
        "r0 sum 0[8:12] in 2 after g0 s_x0_1",
        "g1 compute 1[0:8] 0[0:8] k 0:32 in 1",
        "x1_1 put 1[0:8] 1 after g1",
        "r1 sum 0[0:8] in 2 after g1 s_x1_1",
    ]


def test_slices_of_the_inner_dimension_add_in_order() -> None:
    text = "split cols 64, 192; group by peer, own together; move by dma(1) one at a time; streams 2"
    found = said(ag_gemm(24, 64, 256, ranks=2), text.replace("by peer", "by block"))

    assert found == [
        "g0 compute 0[0:12] k 0:64 in 0",
        "g1 compute 0[0:12] k 64:256 in 1 after g0 adds",
        "x0_1 put 0[0:12] 1",
        "g2 compute 1[0:12] k 0:64 in 0 after s_x0_1",
        "x1_1 put 0[0:12] 1 after x0_1",
        "g3 compute 1[0:12] k 64:256 in 1 after s_x1_1 g2 adds",
    ]


def test_peers_and_kernels_in_any_order() -> None:
    found = said(ag_gemm(24, 64, 64, ranks=3), "split rows into 2; group by block; order own last, peers 2, 1, by peer")

    assert found == [
        "x0_2 put 0[0:4] 2",
        "g0 compute 1[0:4] k 0:64 in 0 after s_x0_2",
        "x1_2 put 0[4:8] 2",
        "g1 compute 1[4:8] k 0:64 in 0 after s_x1_2",
        "x0_1 put 0[0:4] 1",
        "g2 compute 2[0:4] k 0:64 in 0 after s_x0_1",
        "x1_1 put 0[4:8] 1",
        "g3 compute 2[4:8] k 0:64 in 0 after s_x1_1",
        "own compute 0[0:8] k 0:64 in 0",
    ]


def test_own_rows_fill_in() -> None:
    text = "split rows 2, 4, 6; split own rows 12, 0, 0; group own together, pieces 0..1 together, piece 2"
    found = said(ag_gemm(24, 64, 64, ranks=2), text)

    assert found == [
        "x0_1 put 0[0:2] 1",
        "x1_1 put 0[2:6] 1",
        "g0 compute 0[0:12] 1[0:6] k 0:64 in 0 after s_x0_1 s_x1_1",
        "x2_1 put 0[6:12] 1",
        "g1 compute 1[6:12] k 0:64 in 0 after s_x2_1",
    ]


def test_a_sum_waits_for_all_kernels_that_make_its_own_part() -> None:
    text = "split rows 4, 8; split own rows 2, 10; group own together; sums behind"
    found = said(gemm_rs(24, 64, 64, ranks=2), text)

    assert found == [
        "g0 compute 1[0:4] 0[0:2] k 0:32 in 0",
        "x0_1 put 1[0:4] 1 after g0",
        "g1 compute 1[4:12] 0[2:12] k 0:32 in 0",
        "r0 sum 0[0:4] in 0 after g0 g1 s_x0_1",
        "x1_1 put 1[4:12] 1 after g1",
        "r1 sum 0[4:12] in 0 after g1 s_x1_1",
    ]


SCENARIOS = scenarios()
ON_H100 = """use "nvidia/h100"
link nic {{ bandwidth 50 GB/s; achieved 45 GB/s; latency 1.5 us }}
system s {{ gpus 4 x H100; fabric {fabric} }}
workload w on s {{ x = tensor bf16[512, 512] shard {how}; w = tensor bf16[512, 512] shard {other}; {body} }}
"""
ON_H100_BODIES = (("rows", "cols", "y = gemm(all_gather(x), w)"), ("cols", "rows", "y = reduce_scatter(gemm(x, w))"))
# What algorithms of nodes, and of switches that copy and sum, need.
LARGER = tuple(
    compile_text(ON_H100.format(fabric=fabric, how=how, other=other, body=body)).scenario().case
    for fabric in ("rails(nvswitch, link=nvlink, node=2, nic=nic)", "switch(nvswitch, link=nvlink)")
    for how, other, body in ON_H100_BODIES
)


@pytest.mark.quick(4)
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHM_BY_NAME if name != "direct"])
@pytest.mark.parametrize("engine", [DMA3, SM8])
def test_every_algorithm_in_every_grouping(algorithm: str, engine: EngineChoice) -> None:
    base = Outline(engine, Split(SplitAxis.ROWS, 3, (10, 50)), algorithm=algorithm)
    outlines = [replace(base, grouping=Grouping(False, by)) for by in By]
    every = product((*SCENARIOS, *LARGER), outlines)
    for scenario, outline in some(pair for pair in every if not list(rejections_on(*pair))):
        assert check_plan(scenario, build_op_plan(scenario, written_out(scenario, outline), "s")) == ()


@given(st.sampled_from(SCENARIOS), st.data())
@examples(100)
def test_an_outline_that_fits_is_a_plan_without_faults(scenario: OpCase, data: st.DataObject) -> None:
    outline = data.draw(outlines(scenario.num_ranks, whole=False))
    assume(not list(rejections_on(scenario, outline)))

    schedule = build_op_plan(scenario, written_out(scenario, outline), "s")

    assert check_plan(scenario, schedule) == ()


@given(
    st.sampled_from([each for each in SCENARIOS if not each.shape.split]),
    st.sets(st.integers(1, ROWS - 1)),
    st.data(),
)
@examples(60)
def test_any_cut_of_rows_moves_every_row_once(scenario: OpCase, cuts: set[int], data: st.DataObject) -> None:
    """Whatever the sizes are, each peer gets as many rows as with whole shards."""
    pieces = Outline(DMA3, Split(SplitAxis.ROWS, len(cuts) + 1, tuple(sorted(cuts))))
    whole = Outline(DMA3)

    plans = [written_out(scenario, outline) for outline in (pieces, whole)]

    assert check_plan(scenario, build_op_plan(scenario, plans[0], "s")) == ()
    assert rows_to(plans[0]) == rows_to(plans[1])


def rows_to(plan: WrittenPlan) -> dict[tuple[int, int], int]:
    """Rows by (rank, peer)."""
    found: dict[tuple[int, int], int] = {}
    for rank, steps in enumerate(plan.by_rank or (plan.steps,)):
        for step in steps:
            if isinstance(step, Transfer):
                key = rank, step.peer
                found[key] = found.get(key, 0) + step.region.rows.size
    return found


@pytest.mark.parametrize("move", ["move torus_tree by dma(4)", "move torus_tree by sm(8); split rows into 2"])
def test_copies_of_an_outline_have_the_rows_of_all_ranks_that_the_algorithm_names(move: str) -> None:
    text = f"""use "amd/mi300x"
    system torus {{ gpus 49 x MI300X; fabric torus(xgmi, shape=[7, 7]) }}
    workload w on torus {{ x = tensor bf16[3136, 64]; y = reduce_scatter(x) }}
    schedule o for w {{ {move} }}"""
    case = compile_text(text).scenario().case
    plan = declared(case, case.schedules[0])

    assert any(step.region.also for step in plan.steps if isinstance(step, Transfer))
    assert not check_plan(case, plan)
