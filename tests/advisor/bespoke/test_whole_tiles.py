"""Parts of bespoke schedules begin and end with tiles, and what cannot be written as a kernel is said."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from magus.advisor import AdviceOptions, Advisor, Request
from magus.advisor.bespoke.batches import in_whole_tiles
from magus.advisor.candidates.candidate import Candidate, ScheduleOrigin
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice
from magus.compiler.planning.build import build_op_plan
from magus.compiler.request.scenario import scenario_of
from magus.compiler.targets.gemm_program import gemm_programs
from magus.compiler.targets.tile_tables import check_whole_tiles
from magus.compiler.templates.bespoke import cuts_tiles, whole_tiles

REQUEST = Request("AG+GEMM", m=8192, n=3584, k=8192, gpu="H100", ranks=8)
DMA = EngineChoice(EngineKind.DMA, 7)
ROWS = st.lists(st.tuples(st.integers(0, 700), st.integers(0, 700)), min_size=1, max_size=6)


@given(ROWS)
def test_edges_move_to_the_nearest_tile_and_no_row_is_lost(rows: list[tuple[int, int]]) -> None:
    parts = tuple((own, *(remote,) * 7) for own, remote in rows)
    whole = whole_tiles(parts, 8)

    assert not cuts_tiles(whole, 8)
    for before, after in zip(zip(*parts, strict=True), zip(*whole, strict=True), strict=True):
        assert sum(before) == sum(after) and min(after) >= 0
        moved = [abs(one - other) for one, other in zip(accumulate(before), accumulate(after), strict=True)]
        assert max(moved) <= 128
    assert cuts_tiles(parts, 8) or whole == parts


def test_parts_that_cut_tiles_have_a_plan_next_to_them_that_a_kernel_of_whole_tiles_does() -> None:
    scenario = scenario_of(REQUEST).case
    cut = OpChoice("bespoke", 8, DMA, 2, parts=((1024, 0), (0, 240), (0, 464), (0, 320)))
    whole = in_whole_tiles(scenario, cut)

    assert whole is not None and whole.parts == ((1024, 0), (0, 256), (0, 512), (0, 256))
    assert in_whole_tiles(scenario, whole) is None
    for program in gemm_programs(scenario, build_op_plan(scenario, whole)):
        check_whole_tiles(program.groups, 128, 128, 8192, 3584)


def test_of_ties_the_one_in_whole_tiles_is_simpler() -> None:
    scenario = scenario_of(REQUEST).case
    cut = OpChoice("bespoke", 8, DMA, 2, parts=((1024, 0), (0, 240), (0, 784)))
    whole = in_whole_tiles(scenario, cut)
    assert whole is not None
    one, other = (
        Candidate(plan.expression, choice, plan, ScheduleOrigin.BESPOKE, 1.0)
        for choice in (whole, cut)
        for plan in (build_op_plan(scenario, choice),)
    )

    assert one.complexity < other.complexity and other.cuts_tiles


def test_advice_is_in_whole_tiles() -> None:
    scenario = Request("AG+GEMM", m=4096, n=2048, k=8192, gpu="H100", ranks=8)
    advice = Advisor.load().recommend(scenario, AdviceOptions(verify=False))

    assert any(one.choice is not None and one.choice.parts for one in advice.candidates)
    assert not advice.recommended.cuts_tiles
