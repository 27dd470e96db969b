"""Pipelines: exact against an executor of messages, periodic, and as long as the literature says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir.step import ChunkPass, PassKind, Pipeline, PipelineKind
from magus.simcore.steps.orders import Orders, orders_of, rank_of, rejected
from magus.simcore.steps.pipeline import ChunkTicks, PipelineError, PipelineRun, SendMet, _run, run_pipeline
from tests.helpers.marks import examples
from tests.helpers.pipelines import KINDS, by_messages, drawn


@given(drawn())
@examples(60, deep=2000)
def test_a_pipeline_takes_the_ticks_that_messages_take(
    case: tuple[Pipeline, list[ChunkTicks], int, int, int],
) -> None:
    """Every rank ends at the tick at which an executor of messages has it end."""
    pipeline, ticks, microbatches, send, beside = case
    assert rejected(pipeline, len(ticks) // pipeline.chunks, microbatches) is None
    run = run_pipeline(pipeline, ticks, microbatches, send, beside)
    assert run.ends == by_messages(pipeline, microbatches, ticks, send, beside)


@given(
    st.sampled_from(KINDS),
    st.sampled_from([2, 4, 6]),
    st.integers(2, 3),
    st.lists(st.integers(1, 500), min_size=3, max_size=3),
    st.integers(0, 200),
    st.integers(0, 3),
    st.booleans(),
)
def test_rounds_that_are_not_run_follow_to_the_tick(
    kind: PipelineKind, ranks: int, chunks: int, ticks: list[int], send: int, slower: int, met: bool
) -> None:
    """By its period a pipeline ends on every rank when it does by all its microbatches, and computes as long.

    Where each stage is ``slower`` than the one before, or passes meet sends, it may be long until there is a period.
    """
    pipeline = Pipeline(kind, chunks if kind is PipelineKind.INTERLEAVED else 1)
    longer = zip(PassKind, (*ticks, ticks[0]) if met else (), strict=met)
    meets = tuple(SendMet(work, each // 4, each // 3) for work, each in longer)
    stages = [
        ChunkTicks(ticks[0] + slower * number, *ticks[1:], meets=meets) for number in range(ranks * pipeline.chunks)
    ]
    microbatches = 20 * ranks * (pipeline.chunks + 2) + 2 * ranks
    whole = run_pipeline(pipeline, stages, microbatches, send, most_tasks=10**9)
    some = run_pipeline(pipeline, stages, microbatches, send, most_tasks=0)
    assert whole.simulated == microbatches and (slower or met or some.simulated < microbatches)
    assert (some.ends, some.busy, some.microbatches) == (whole.ends, whole.busy, microbatches)


def test_two_sends_that_leave_at_once_take_longer() -> None:
    """Of two passes beside each other both hand something on to the same rank, except at the ends of the model."""
    ranks, send, beside = 4, 7, 5
    run = run_pipeline(Pipeline(PipelineKind.DUAL), [ChunkTicks(100, 100, 100)] * ranks, 16, send, beside)

    def is_sent(task: ChunkPass) -> bool:
        return task.chunk != (ranks - 1 if task.work is PassKind.FORWARD else 0)

    waits: dict[bool, list[int]] = {True: [], False: []}
    made = {}
    for each in run.intervals:
        for task in each.slot:
            made[task] = each.end_ticks, len(each.slot) == 2 and all(map(is_sent, each.slot))
    for each in run.intervals:
        for task in each.slot:
            step = -1 if task.work is PassKind.FORWARD else 1
            before = task._replace(chunk=task.chunk + step)
            if before in made and task.work is not PassKind.WEIGHTS:
                end, together = made[before]
                waits[together].append(each.begin_ticks - end)
    assert (min(waits[False]), min(waits[True])) == (send, send + beside)
    middle = run_pipeline(Pipeline(PipelineKind.DUAL), [ChunkTicks(100, 100, 100)] * ranks, 16, send, 0)
    assert run.makespan_ticks > middle.makespan_ticks
    alone = [run_pipeline(Pipeline(), [ChunkTicks(100, 100, 100)] * ranks, 16, send, each).ends for each in (0, beside)]
    assert alone[0] == alone[1]


def test_a_pass_that_begins_with_a_send_takes_longer_and_so_does_that() -> None:
    """Of two stages: the first begins its second pass as it sends, and the other its first one as that has come."""
    met = (SendMet(PassKind.FORWARD, 6, 4), SendMet(PassKind.BACKWARD, 10, 20))
    chunks = [ChunkTicks(100, 100, 100, meets=met)] * 2
    run = run_pipeline(Pipeline(), chunks, 2, 8)
    slots = {(each.rank, *each.slot[0]): (each.begin_ticks, each.end_ticks) for each in run.intervals}
    forward, backward = PassKind.FORWARD, PassKind.BACKWARD
    assert slots[0, forward, 0, 0, 0] == (0, 100)
    assert slots[0, forward, 0, 0, 1] == (100, 106 + 100), "its own send is under way"
    assert slots[1, forward, 0, 1, 0] == (100 + 8 + 4, 212), "what it takes has come later"
    # That of the second pass is under way from 206 to 214, and the backward pass begins with what is left of it.
    assert slots[1, backward, 0, 1, 0] == (212, 412 + 10 * 2 // 8)
    assert slots[1, forward, 0, 1, 1] == (414, 514 + 6)
    assert slots[0, backward, 0, 0, 0] == (414 + 8 + 4, 626)


def _uniform(kind: PipelineKind, ranks: int, microbatches: int, chunks: int = 1, each: int = 100) -> PipelineRun:
    """A pipeline whose forward pass and both halves of the backward pass of a stage take ``each`` ticks."""
    ticks = [ChunkTicks(*[each // chunks] * 3) for _ in range(ranks * chunks)]
    return run_pipeline(Pipeline(kind, chunks), ticks, microbatches, 0)


@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 16), (8, 32), (16, 64)])
def test_idle_time_is_what_was_published(ranks: int, microbatches: int) -> None:
    """Each schedule is idle as long as its paper says, with forward F, inputs B and weights W of 100 ticks each."""
    whole = 300 * microbatches

    def idle(kind: PipelineKind, chunks: int = 1) -> int:
        return _uniform(kind, ranks, microbatches, chunks).makespan_ticks - whole

    assert idle(PipelineKind.ONE_F_ONE_B) == (ranks - 1) * 300
    assert idle(PipelineKind.INTERLEAVED, 2) == (ranks - 1) * 300 // 2
    assert idle(PipelineKind.ZERO_BUBBLE) == (ranks - 1) * (100 + 100 - 100)
    assert idle(PipelineKind.DUAL) == (ranks // 2 - 1) * (300 + 200 - 3 * 100)


@pytest.mark.parametrize("kind", KINDS)
def test_each_chunk_is_computed_once(kind: PipelineKind) -> None:
    """All microbatches go through all chunks, forward and backward, and gradients of weights are made once."""
    ranks, microbatches = 4, 16
    orders = orders_of(Pipeline(kind, 2 if kind is PipelineKind.INTERLEAVED else 1), ranks, microbatches)
    tasks = [task for slots in orders.slots for slot in slots for task in slot]
    per_path = microbatches // orders.paths
    for work in (PassKind.FORWARD, PassKind.WEIGHTS):
        made = sorted(
            (task.path, task.chunk, task.microbatch)
            for task in tasks
            if task.work is work or (work is PassKind.WEIGHTS and task.work is PassKind.BACKWARD)
        )
        wanted = [(p, c, m) for p in range(orders.paths) for c in range(orders.chunks) for m in range(per_path)]
        assert made == wanted
    assert all(
        rank_of(task.path, task.chunk, ranks) == rank
        for rank, slots in enumerate(orders.slots)
        for slot in slots
        for task in slot
    )


def test_microbatches_that_do_not_fit_are_rejected() -> None:
    """What a pipeline cannot take is rejected with what it can."""
    interleaved, dual = Pipeline(PipelineKind.INTERLEAVED, 2), Pipeline(PipelineKind.DUAL)
    assert rejected(interleaved, 4, 8) is None and rejected(dual, 4, 8) is None
    for pipeline, ranks, microbatches in ((interleaved, 4, 6), (interleaved, 1, 4), (dual, 3, 8), (dual, 4, 6)):
        found = rejected(pipeline, ranks, microbatches)
        assert found is not None and found.hint


def test_orders_in_a_circle_are_named() -> None:
    """Two stages that each wait for the other are an error that says where each stands."""
    slots = (
        ((ChunkPass(PassKind.BACKWARD, 0, 0, 0),), (ChunkPass(PassKind.FORWARD, 0, 0, 0),)),
        ((ChunkPass(PassKind.FORWARD, 0, 1, 0),), (ChunkPass(PassKind.BACKWARD, 0, 1, 0),)),
    )
    with pytest.raises(PipelineError, match="stage 0 waits to compute B of chunk 0, microbatch 0; stage 1"):
        _run(Orders(slots, 2), [ChunkTicks(1, 1, 1)] * 2, 1, (0, 0))
