"""When all ranks stand still: once every message that their last reports count has been received."""

from magus.compiler.ir import Direction, IndexRange, Region, TileGroup, Transfer
from magus.runtime.over_torch.rank_board import Census, RankBoard, Standstill
from magus.runtime.tasks import Task

REGION = Region(0, IndexRange(0, 1), IndexRange(0, 1))
STREAM = (0, "stream 0")


def test_a_message_under_way_keeps_ranks_waiting() -> None:
    census = Census(2)

    assert not census.all_still(0, Standstill((0, 1), (0, 0)))
    assert not census.all_still(1, Standstill((0, 0), (0, 0))), "what rank 0 has sent is under way"
    assert census.all_still(1, Standstill((0, 0), (1, 0)))


def test_an_answer_to_an_answer_is_waited_for() -> None:
    census = Census(2)
    census.all_still(0, Standstill((0, 1), (0, 0)))

    assert not census.all_still(1, Standstill((1, 0), (1, 0))), "rank 0 has not seen what rank 1 has sent since"
    assert census.all_still(0, Standstill((0, 1), (0, 1)))


def test_a_rank_that_waits_for_another_stands_still_until_it_is_told() -> None:
    put = Task(0, 1, Transfer("x", Direction.PUT, REGION, 1, "s"), (1, "lane 0"), ())
    kernel = Task(1, 0, TileGroup("g", (REGION,), IndexRange(0, 1)), STREAM, ((0, "s"),))
    board = RankBoard((put, kernel), 2, {STREAM: 1}, seed=0)
    board.start()

    assert board.standstills.get_nowait() == Standstill((0, 0), (0, 0))
    assert not board.stopped
    board.arrive(1, (0, "s"), put)
    assert board.standstills.empty()
    assert board.take(STREAM) is kernel
    board.count_sent(1)
    board.finish(kernel)

    assert kernel.follows(0)
    assert board.standstills.get_nowait() == Standstill((0, 1), (0, 1))
