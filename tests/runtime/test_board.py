"""Who may go next: threads that are held up, runs and ranks that stand still, and errors that end all threads."""

from threading import Thread

import pytest

from magus.compiler.ir import Direction, IndexRange, Region, Step, TileGroup, Transfer
from magus.runtime.board import Board, Census, HoldPolicy, Moment, RankBoard, RunOver, Standstill
from magus.runtime.tasks import Queue, Task

REGION = Region(0, IndexRange(0, 1), IndexRange(0, 1))
STREAM, LANE = (0, "stream 0"), (0, "lane 0")


def kernel(name: str) -> Step:
    return TileGroup(name, (REGION,), IndexRange(0, 1))


def task(number: int, step: Step, queue: Queue, *waits: str) -> Task:
    return Task(number, 0, step, queue, tuple((0, name) for name in waits))


def put(name: str) -> Step:
    return Transfer(name, Direction.PUT, REGION, 0, f"s_{name}")


def board_of(*tasks: Task) -> Board:
    return Board(tasks, 1, dict.fromkeys((each.queue for each in tasks), 1), seed=0)


def finish(board: Board, done: Task) -> None:
    board.reach((0, done.step.name), done)
    if isinstance(done.step, Transfer):
        board.reach((0, done.step.signal), done)
    board.finish(done)


def test_tasks_know_what_came_before_them_through_signals() -> None:
    first, then, last = task(0, put("x"), LANE), task(1, kernel("g"), STREAM, "s_x"), task(2, kernel("h"), STREAM, "g")
    board = board_of(first, then, last)
    for queue, expected in ((LANE, first), (STREAM, then), (STREAM, last)):
        assert board.take(queue) is expected
        finish(board, expected)

    assert (then.known, last.known) == (0b1, 0b11)
    assert last.follows(0) and not then.follows(2)
    assert board.stopped and not board.stuck


def test_where_everything_waits_the_run_ends_and_says_what_for() -> None:
    one, other = task(0, kernel("g"), STREAM, "x"), task(1, put("x"), LANE, "g", "nothing")
    board = board_of(one, other)
    board.start()

    assert board.stopped
    assert board.stuck == [(one, ((0, "x"),)), (other, ((0, "g"), (0, "nothing")))]
    with pytest.raises(RunOver):
        board.take(STREAM)


def test_a_thread_that_is_held_up_goes_on_when_nothing_else_can() -> None:
    slow, quick = task(0, put("x"), LANE), task(1, kernel("g"), STREAM)
    board, order = board_of(slow, quick), []

    def work(queue: Queue) -> None:
        taken = board.take(queue)
        if taken is slow:
            board.hold(taken)
        order.append(taken.step.name)
        finish(board, taken)

    threads = [Thread(target=work, args=(queue,), daemon=True) for queue in (LANE, STREAM)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert order == ["g", "x"]


def test_an_error_ends_threads_that_are_held_up_and_the_first_is_kept() -> None:
    slow, other, caught = task(0, put("x"), LANE), task(1, kernel("g"), STREAM), []
    board = board_of(slow, other)

    def work() -> None:
        try:
            board.hold(board.take(LANE))
        except RunOver:
            caught.append("stopped")

    board.take(STREAM)
    thread = Thread(target=work, daemon=True)
    thread.start()
    first = ValueError("first")
    board.stop(first)
    board.stop(ValueError("second"))
    thread.join(60)

    assert caught == ["stopped"]
    assert board.error is first


def test_with_seed_0_copies_land_late_and_with_seed_1_kernels_begin_late() -> None:
    copy, compute = task(0, put("x"), LANE), task(1, kernel("g"), STREAM)

    assert [HoldPolicy(0).holds(copy, moment) for moment in Moment] == [False, True]
    assert [HoldPolicy(1).holds(compute, moment) for moment in Moment] == [True, False]
    assert not any(HoldPolicy(0).holds(compute, moment) or HoldPolicy(1).holds(copy, moment) for moment in Moment)


def test_other_seeds_draw_and_draw_alike_each_time() -> None:
    tasks = [task(number, kernel(f"g{number}"), STREAM) for number in range(50)]
    held = [[HoldPolicy(seed).holds(each, Moment.END) for each in tasks] for seed in (2, 2, 3)]

    assert held[0] == held[1] != held[2]
    assert 10 < sum(held[0]) < 40


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


def test_a_rank_that_waits_for_another_stands_still_until_it_is_reported() -> None:
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
