"""Trees for the rows of each shard: what they carry, in which order, and what is no tree."""

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.codes import Code
from magus.compiler.collectives import signal_of
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
    Reduction,
    TileGroup,
    Transfer,
    Wait,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates.tree_copies import ordered_copies
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore import RunOptions, simulate_op
from magus.simcore.cores.engine import Core, run
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle

BOX = """
use "amd/mi300x"
system box { gpus 4 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]) }
"""
COLLECTIVES = {
    "all_gather": "x = tensor bf16[92, 64] shard rows; y = all_gather(x)",
    "reduce_scatter": "x = tensor bf16[92, 64]; y = reduce_scatter(x)",
    "all_reduce": "x = tensor bf16[92, 64]; y = all_reduce(x)",
    "parts of unequal size": "x = tensor bf16[94, 64]; y = all_reduce(x)",
    "broadcast": "x = tensor bf16[92, 64]; y = broadcast(x)",
    "all_to_all": "x = tensor bf16[92, 64]; y = all_to_all(x)",
}
_GATHERED = "x = tensor bf16[92, 64] shard rows; w = tensor bf16[64, 256] shard cols; p = all_gather(x)"
_MADE = "x = tensor bf16[92, 256] shard cols; w = tensor bf16[256, 64] shard rows; p = gemm(x, w)"
BESIDE = {
    "AG+GEMM": f"{_GATHERED}; y = gemm(p, w)",
    "GEMM+RS": f"{_MADE}; y = reduce_scatter(p)",
    "GEMM+AR": f"{_MADE}; y = all_reduce(p)",
}
TREES = ((0, 1, 0, 0, 0, 0), (1, 2, 1, 1, 1, 2), (1, 1, 1, 1, 1, 0), (2, 1, 2, 2, 2, 2), (3, 1, 3, 0, 3, 3))


def case_of(collective: str) -> OpCase:
    return compile_text(f"{BOX}workload one on box {{ {(COLLECTIVES | BESIDE)[collective]} }}\n").scenario().case


def choice_of(*trees: tuple[int, ...], chunks: int = 12, lanes: int = 0) -> OpChoice:
    return OpChoice("forest", chunks, EngineChoice(EngineKind.DMA, 6), lanes=lanes, trees=trees)


def trees_for(collective: str) -> tuple[tuple[int, ...], ...]:
    """A broadcast has all its trees from rank 0."""
    return ((0, 2, 0, 0, 1, 0), (0, 1, 0, 0, 0, 2)) if collective == "broadcast" else TREES


@pytest.mark.parametrize("lanes", [0, 6])
@pytest.mark.parametrize("collective", COLLECTIVES | BESIDE)
def test_every_rank_ends_with_what_it_should(collective: str, lanes: int) -> None:
    """23 rows of a shard divide neither by weights nor by chunks."""
    case = case_of(collective)
    plan = build_op_plan(case, choice_of(*trees_for(collective), lanes=lanes))

    report = carry_out(*job_of_op(case, plan), range(2))
    assert report.exact, report


@pytest.mark.parametrize("tactics", [ExecutionOptions(), ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)])
@pytest.mark.parametrize("collective", BESIDE)
def test_kernels_take_rows_of_any_rank(collective: str, tactics: ExecutionOptions) -> None:
    case, pattern = case_of(collective), case_of(collective).shape.pattern
    sums = 4 if pattern.sums and tactics.kernel is Kernels.LAUNCHED else 1
    plan = build_op_plan(case, replace(choice_of(*TREES), waves=2, sums=sums, tactics=tactics))
    kernels = [step for step in plan.steps_of(2) if isinstance(step, TileGroup)]

    assert carry_out(*job_of_op(case, plan), range(2)).exact
    names = [kernel.name for kernel in kernels]
    if collective != "GEMM+AR":  # there what a rank is the root of is made when the rest comes up
        assert names.index("own") == (len(kernels) - 1 if pattern.produces else 0)
    assert any(len({region.owner for region in kernel.regions}) > 1 for kernel in kernels)
    sizes = [sum(region.rows.size for region in kernel.regions) for kernel in kernels if kernel.name != "own"]
    assert sum(sizes) == (4 if collective == "GEMM+AR" else 3) * 23
    assert min(sizes[:-1] if pattern.consumes else sizes[1:]) >= 2 * 23 // 3


def test_kernels_follow_the_order_in_which_rows_arrive() -> None:
    plan = build_op_plan(case_of("AG+GEMM"), choice_of(*TREES))
    timed = sorted((end, chunk.name("d", 0)) for (chunk, to, _), end in ordered_copies(TREES, (23,) * 4, 3) if to == 0)
    waits = [name for step in plan.steps_of(0) if isinstance(step, TileGroup) for name in step.after]

    assert waits == [signal_of(name) for _, name in timed]


def test_chunks_beside_a_kernel_have_whole_tiles() -> None:
    copies = ordered_copies(TREES, (400,) * 4, 3, step=64)

    edges = {edge for (chunk, _, _), _ in copies for edge in (chunk.rows.start, chunk.rows.stop)}
    assert edges - {400} and not any(edge % 64 for edge in edges - {400})
    assert sum(chunk.rows.size for (chunk, to, _), _ in copies if to == 3) == 3 * 400


def test_rows_of_an_all_reduce_go_to_any_root() -> None:
    """Two trees of which one has two thirds of all rows: no chunk has rows of two owners, and ranks 2 and 3 no tree."""
    trees, case = ((0, 2, 0, 0, 0, 0), (1, 1, 1, 1, 1, 2)), case_of("all_reduce")
    chunks = {copy.chunk for copy, _ in ordered_copies(trees, (23,) * 4, 3, kind=Pattern.ALL_REDUCE)}
    rows = Counter(chunk.root for chunk in chunks for _ in range(chunk.rows.size))
    covered = Counter((chunk.owner, row) for chunk in chunks for row in range(chunk.rows.start, chunk.rows.stop))

    assert rows == {0: 61, 1: 31} and covered == {(owner, row): 1 for owner in range(4) for row in range(23)}
    assert carry_out(*job_of_op(case, build_op_plan(case, choice_of(*trees))), range(2)).exact
    made = case_of("GEMM+AR")
    assert carry_out(*job_of_op(made, build_op_plan(made, replace(choice_of(*trees), waves=2))), range(2)).exact


def test_where_links_go_one_way_rows_come_down_other_ways_than_they_went_up() -> None:
    """Three GPUs in a round: down along it from the root, and up along it to the root."""
    system = 'use "amd/mi300x"\nsystem round { gpus 3 x MI300X; fabric edges(xgmi=[0 -> 1, 1 -> 2, 2 -> 0]) }\n'
    text = f"{system}workload one on round {{ x = tensor bf16[93, 64]; y = all_reduce(x) }}\n"
    case = compile_text(text).scenario().case
    trees = ((0, 2, 0, 0, 1, 0, 2, 0), (1, 1, 2, 1, 1, 1, 1, 0))
    plan = build_op_plan(case, choice_of(*trees, chunks=9))
    peers = {step.peer for rank in range(3) for step in plan.steps_of(rank) if isinstance(step, Transfer)}

    assert peers == {1} and carry_out(*job_of_op(case, plan), range(2)).exact
    gathered = reject_choice(case_of("all_gather"), choice_of((0, 1, *(0,) * 8)))
    assert gathered is not None and "has 10 numbers, for 4 ranks it needs 6" in gathered.message
    summed = reject_choice(case, choice_of((0, 1, 0, 0, 1, 0, 0)))
    assert summed is not None and "has 7 numbers, for 3 ranks it needs 5 or 8" in summed.message


def test_chunks_of_an_all_reduce_go_down_while_others_go_up() -> None:
    """Along a chain 48 copies share a link; the first goes down after three up and their sums, of two copies each."""
    chain = ((0, 1, 0, 0, 1, 2), (3, 1, 1, 2, 3, 3))
    timed = ordered_copies(chain, (240,) * 4, 12, kind=Pattern.ALL_REDUCE)

    firsts = {up: min(at for copy, at in timed if copy.up is up) for up in (True, False)}
    assert firsts == {True: 0, False: pytest.approx(10 / 48)}
    assert max(at for copy, at in timed if not copy.up) < 1.2


def test_rows_of_ranks_that_add_up_are_refused() -> None:
    attention = "q = tensor bf16[1024, 512] shard rows; kv = tensor bf16[1024, 256] shard rows"
    text = f"{BOX}workload one on box {{ {attention}; y = attention(q, all_gather(kv), heads=4, kv_heads=1) }}\n"
    rejection = reject_choice(compile_text(text).scenario().case, choice_of(*TREES))

    assert rejection is not None and "those of each rank add up" in rejection.message


def test_sums_are_made_where_a_tree_branches() -> None:
    plan = build_op_plan(case_of("reduce_scatter"), choice_of(*TREES, chunks=4))
    sums = [[step.num_parts for step in plan.steps_of(rank) if isinstance(step, Reduction)] for rank in range(4)]

    # Rank 2 sums its own with what comes up from rank 3 for rank 1, rank 0 with what rank 1 has for rank 3.
    assert sorted(sums[2]) == [2, 4] and sorted(sums[0]) == [2, 2, 4]


def test_a_chunk_leaves_a_rank_behind_its_arrival() -> None:
    copies = [(copy.chunk, copy.rank) for copy, _ in ordered_copies(TREES, (23,) * 4, 3)]
    places = {(chunk, rank): place for place, (chunk, rank) in enumerate(copies)}

    below = [(chunk, rank) for chunk, rank in copies if chunk.parents[rank] != chunk.root]
    assert below and all(places[chunk, chunk.parents[rank]] < places[chunk, rank] for chunk, rank in below)
    of_rank_1 = {chunk.tree: chunk.rows.stop - chunk.rows.start for chunk, _ in copies if chunk.root == 1}
    assert set(of_rank_1) == {1, 2}
    assert sum(chunk.rows.size for chunk, rank in copies if rank == 3) == 3 * 23


def test_the_busiest_link_is_full_and_others_take_their_time() -> None:
    """Of direct copies between ranks 1 and 3 both links of each way carry two shards, the link from 0 to 2 one."""
    trees, network = tuple((root, 1, *(root,) * 4) for root in range(4)), case_of("all_gather").network
    for known, least in ((network, 0.75), (None, 1.0)):
        ends, sent = defaultdict[tuple[int, int], float](float), Counter[tuple[int, int]]()
        for copy, end in ordered_copies(trees, (24,) * 4, 3, network=known):
            ends[copy.link] = max(ends[copy.link], end)
            sent[copy.link] += 1
        assert len(sent) == 12 and set(sent.values()) == {3}
        assert ends[0, 2] == pytest.approx(least) and max(ends.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("trees", "reason"),
    [
        (((0, 1, 0, 0, 0),), "has 5 numbers, for 4 ranks it needs 6"),
        (((0, 0, 0, 0, 0, 0),), "has no weight"),
        (((0, 1, 1, 0, 0, 0),), "its root has a parent"),
        (((0, 1, 0, 0, 0, 4),), "names rank 4, of 4"),
        (((0, 1, 0, 2, 1, 0),), "does not lead from rank 0 to all ranks"),
        (((0, 1, 0, 0, 0, 0),), "no tree has root 1: each rank needs a tree"),
    ],
)
def test_what_is_no_tree_is_told(trees: tuple[tuple[int, ...], ...], reason: str) -> None:
    rejection = reject_choice(case_of("all_gather"), choice_of(*trees))

    assert rejection is not None and rejection.code is Code.MGS514 and reason in rejection.message


def test_a_tree_of_a_broadcast_begins_at_its_root() -> None:
    rejection = reject_choice(case_of("broadcast"), choice_of(*TREES))

    assert rejection is not None and rejection.code is Code.MGS514 and "comes from rank 0" in rejection.message


def test_too_many_copies_are_refused_before_they_are_put_in_order() -> None:
    text = f"""{BOX}workload one on box {{ x = tensor bf16[160000, 64] shard rows; y = all_gather(x) }}\n"""
    case = compile_text(text).scenario().case
    rejection = reject_choice(case, choice_of(chunks=160000))

    assert rejection is not None and rejection.code is Code.MGS512 and "480000 copies" in rejection.message
    assert reject_choice(case, choice_of(chunks=10920)) is None and "chunks=10920" in rejection.hint
    assert reject_choice(case, choice_of(chunks=10924)) is not None


def test_where_there_are_too_many_copies_is_told() -> None:
    work = "workload one on box { x = tensor bf16[160000, 64] shard rows; y = all_gather(x) }"
    said = "forest(chunks=160000, engine=dma(6))"
    with pytest.raises(CompileError) as caught:
        compile_text(f"{BOX}{work}\nschedule p for one = {said}\n")

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS512 and "480000 copies, more than 32768" in found.message
    assert found.span is not None and found.span.text == said


@pytest.mark.parametrize("collective", ["all_gather", "all_reduce", "broadcast"])
def test_a_share_that_makes_no_whole_row_has_no_copies(collective: str) -> None:
    """Of two trees of a root one carries a millionth of 92 rows: the other carries them all."""
    first = (0, 1_000_000, 0, 0, 1, 0)
    others = () if collective == "broadcast" else TREES[1:]
    case = case_of(collective)
    plan = build_op_plan(case, choice_of(first, (0, 1, 0, 2, 0, 2), *others))

    assert carry_out(*job_of_op(case, plan), range(2)).exact
    alone = build_op_plan(case, choice_of(first, *others))
    count = [
        sum(isinstance(step, Transfer) for rank in range(4) for step in each.steps_of(rank)) for each in (plan, alone)
    ]
    assert count[0] == count[1] > 0


def test_other_templates_have_no_trees() -> None:
    choice = OpChoice("direct", 4, EngineChoice(EngineKind.DMA, 6), trees=TREES)
    rejection = reject_choice(case_of("all_gather"), choice)

    assert rejection is not None and rejection.message == "direct has no trees"


@pytest.mark.parametrize("collective", COLLECTIVES | BESIDE)
def test_all_cores_agree_with_the_oracle(collective: str) -> None:
    case = case_of(collective)
    sums = 4 if case.shape.pattern.sums else 1
    plan = build_op_plan(case, replace(choice_of(*trees_for(collective), lanes=6), sums=sums))
    program = lower_op(case, plan, unit_bytes=4096, fold=False).program

    oracle = Oracle(program).run()
    assert [differences(program, run(program, core=core), oracle) for core in Core] == [[]] * len(Core)


def test_a_link_of_its_own_keeps_its_lane_where_others_share() -> None:
    """Three peers at a switch have two of three lanes, a fourth by another link the third; all begin with the next."""
    edges = f"{[[rank, 8 + rank // 4] for rank in range(8)]}, pcie={[[rank, rank + 4] for rank in range(4)]}"
    text = f"""use "amd/mi300x"
link pcie {{ bandwidth 50 GB/s; achieved 45 GB/s; latency 1 us }}
system boxes {{ gpus 8 x MI300X; fabric edges(switches=2, xgmi={edges}) }}
workload one on boxes {{ x = tensor bf16[64, 64] shard rows; y = all_gather(x) }}
"""
    case, boxes = compile_text(text).scenario().case, (range(4), range(4, 8))
    trees = tuple(
        (root, 1, *(root if rank // 4 == root // 4 else (root + 4) % 8 for rank in range(8))) for root in range(8)
    )
    trees = tuple(
        (*tree[:2], *(tree[0] if rank == (tree[0] + 4) % 8 else above for rank, above in enumerate(tree[2:])))
        for tree in trees
    )
    plan = build_op_plan(case, replace(choice_of(*trees, chunks=16, lanes=3)))
    for rank in range(8):
        steps = plan.steps_of(rank)
        lanes = {((rank + step.peer) % 8, step.lane) for step in steps if isinstance(step, Transfer)}
        near = [lane for peer, lane in sorted(lanes, key=lambda each: (each[0] - rank) % 8) if peer in boxes[rank // 4]]
        far = {lane for peer, lane in lanes} - set(near)
        assert len(lanes) == 4 and len(far) == 1 and len(set(near)) == 2 and near[0] == near[2]
        assert next(step.peer for step in steps if isinstance(step, Transfer)) == (1 if rank % 4 < 3 else 4)
    assert carry_out(*job_of_op(case, plan), range(2)).exact


CHAINS = tuple((root, 1, *((root + max(0, (rank - root) % 4 - 1)) % 4 for rank in range(4))) for root in range(4))
PAIRS = ((0, 1, 0, 0, 0, 2), (2, 1, 2, 0, 2, 2))  # of two roots, each above the other


@pytest.mark.parametrize(
    ("collective", "trees", "period"),
    [
        ("all_gather", CHAINS, 1),
        ("reduce_scatter", CHAINS, 1),
        ("all_reduce", CHAINS, 1),
        ("all_reduce", PAIRS, 2),
        ("all_reduce", CHAINS[:2], 4),
        ("parts of unequal size", CHAINS, 1),
        ("AG+GEMM", CHAINS, 4),
    ],
)
def test_a_plan_repeats_after_the_ranks_by_which_trees_can_be_shifted(
    collective: str, trees: tuple[tuple[int, ...], ...], period: int
) -> None:
    """What a rank sums in one kernel waits for no sum of another that waits for it."""
    text = f"{BOX}\nsystem four {{ gpus 4 x MI300X; fabric ring(xgmi) }}"
    case = compile_text(f"{text}\nworkload one on four {{ {(COLLECTIVES | BESIDE)[collective]} }}\n").scenario().case
    one_kernel = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    sums = case.shape.is_collective and case.shape.pattern.sums
    choice = replace(choice_of(*trees, lanes=3), tactics=one_kernel if sums else ExecutionOptions())
    plan = build_op_plan(case, choice)
    times = {simulate_op(case, plan, unit_bytes=128, options=RunOptions(fold)).makespan_ticks for fold in (True, False)}

    assert plan.period(4) == period and len(times) == 1
    assert carry_out(*job_of_op(case, plan), range(2)).exact
