"""Trees for the rows of each shard: what they carry, in which order, and what is no tree."""

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, Reduction
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates.forest import ordered_copies
from magus.runtime import carry_out
from tests.helpers.plans.alone import alone

BOX = """
use "amd/mi300x"
system box { gpus 4 x MI300X; fabric edges(xgmi=[[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]) }
"""
COLLECTIVES = {
    "all_gather": "x = tensor bf16[92, 64] shard rows; y = all_gather(x)",
    "reduce_scatter": "x = tensor bf16[92, 64]; y = reduce_scatter(x)",
    "all_reduce": "x = tensor bf16[92, 64]; y = all_reduce(x)",
}
TREES = ((0, 1, 0, 0, 0, 0), (1, 2, 1, 1, 1, 2), (1, 1, 1, 1, 1, 0), (2, 1, 2, 2, 2, 2), (3, 1, 3, 0, 3, 3))


def case_of(collective: str) -> OpCase:
    return compile_text(f"{BOX}workload one on box {{ {COLLECTIVES[collective]} }}\n").scenario().case


def choice_of(*trees: tuple[int, ...], chunks: int = 12, lanes: int = 0) -> OpChoice:
    return OpChoice("forest", chunks, EngineChoice(EngineKind.DMA, 6), lanes=lanes, trees=trees)


@pytest.mark.parametrize("lanes", [0, 6])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_rank_ends_with_what_it_should(collective: str, lanes: int) -> None:
    """23 rows of a shard divide neither by weights nor by chunks."""
    case = case_of(collective)
    plan = build_op_plan(case, choice_of(*TREES, lanes=lanes))

    report = carry_out(*alone(case, plan), range(2))
    assert report.exact, report


def test_sums_are_made_where_a_tree_branches() -> None:
    plan = build_op_plan(case_of("reduce_scatter"), choice_of(*TREES, chunks=4))
    sums = [[step.num_parts for step in plan.steps_of(rank) if isinstance(step, Reduction)] for rank in range(4)]

    # Rank 2 sums its own with what comes up from rank 3 for rank 1, rank 0 with what rank 1 has for rank 3.
    assert sorted(sums[2]) == [2, 4] and sorted(sums[0]) == [2, 2, 4]


def test_a_chunk_leaves_a_rank_behind_its_arrival() -> None:
    copies = ordered_copies(TREES, 23, 3)
    places = {(chunk, rank): place for place, (chunk, rank) in enumerate(copies)}

    below = [(chunk, rank) for chunk, rank in copies if chunk.parents[rank] != chunk.root]
    assert below and all(places[chunk, chunk.parents[rank]] < places[chunk, rank] for chunk, rank in below)
    of_rank_1 = {chunk.tree: chunk.rows.stop - chunk.rows.start for chunk, _ in copies if chunk.root == 1}
    assert set(of_rank_1) == {1, 2}
    assert sum(chunk.rows.size for chunk, rank in copies if rank == 3) == 3 * 23


@pytest.mark.parametrize(
    ("trees", "reason"),
    [
        (((0, 1, 0, 0, 0),), "has 5 numbers, for 4 ranks it needs 6"),
        (((0, 0, 0, 0, 0, 0),), "has no weight"),
        (((0, 1, 1, 0, 0, 0),), "its root has a parent"),
        (((0, 1, 0, 0, 0, 4),), "names no rank"),
        (((0, 1, 0, 2, 1, 0),), "does not lead from rank 0 to all ranks"),
        (((0, 1, 0, 0, 0, 0),), "each rank needs a tree"),
    ],
)
def test_what_is_no_tree_is_told(trees: tuple[tuple[int, ...], ...], reason: str) -> None:
    rejection = reject_choice(case_of("all_gather"), choice_of(*trees))

    assert rejection is not None and rejection.code is Code.MGS514 and reason in rejection.message


def test_other_templates_have_no_trees() -> None:
    choice = OpChoice("direct", 4, EngineChoice(EngineKind.DMA, 6), trees=TREES)
    rejection = reject_choice(case_of("all_gather"), choice)

    assert rejection is not None and rejection.message == "direct has no trees"
