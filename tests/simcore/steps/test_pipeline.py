"""Pipelines: exact against an executor of messages, periodic, and as long as the literature says."""

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir.step import ChunkPass, PassKind, Pipeline, PipelineKind
from magus.simcore.steps.orders import Orders, orders_of, rank_of, rejected
from magus.simcore.steps.pipeline import ChunkTicks, PipelineError, PipelineRun, _run, run_pipeline
from tests.helpers.marks import examples

KINDS = list(PipelineKind)


_Task = tuple[str, int, int, int]
"""What is computed, F, B, I or W, of which path, chunk and microbatch."""


def by_messages(
    pipeline: Pipeline, microbatches: int, ticks: Sequence[ChunkTicks], send: int, beside: int
) -> tuple[int, ...]:
    """When each rank has ended, by an executor of its own: a rank takes what a message has brought, in its turn.

    Turns are those that the papers and programs of each pipeline say, not those of the simulator.
    """
    chunks, paths = len(ticks), 2 if pipeline.kind is PipelineKind.DUAL else 1
    ranks, per_path = chunks // pipeline.chunks, microbatches // paths
    turns = [deque(_turns(pipeline, rank, ranks, microbatches)) for rank in range(ranks)]
    inbox = {("F", path, 0, number) for path in range(paths) for number in range(per_path)}
    free, events = [0] * ranks, [(0, rank, ("", 0, 0, 0)) for rank in range(ranks)]
    heapq.heapify(events)
    while events:
        now, rank, message = heapq.heappop(events)
        inbox.add(message)
        if now < free[rank] or not turns[rank] or any(_taken(task) not in inbox for task in turns[rank][0]):
            continue
        slot = turns[rank].popleft()
        free[rank] = now + _took(slot, ticks, per_path - 1)
        sent = [each for each in map(partial(_made, chunks), slot) if each is not None]
        later = free[rank] + (beside if len(sent) == 2 and not any(_turns_back(slot, chunks)) else 0)
        heapq.heappush(events, (free[rank], rank, ("", 0, 0, 0)))
        for each in sent:
            _, path, chunk, _ = each
            to = chunk % ranks if path == 0 else ranks - 1 - chunk
            heapq.heappush(events, (later + (send if to != rank else 0), to, each))
    assert not any(turns), "all has been computed"
    return tuple(free)


def _taken(task: _Task) -> _Task:
    """What a task waits for; gradients of weights for nothing that comes."""
    work, path, chunk, number = task
    return ("", 0, 0, 0) if work == "W" else ("F" if work == "F" else "B", path, chunk, number)


def _turns_back(slot: tuple[_Task, ...], chunks: int) -> list[bool]:
    return [work == "F" and chunk == chunks - 1 for work, _, chunk, _ in slot]


def _made(chunks: int, task: _Task) -> _Task | None:
    """What the next chunk takes of a task, or the same one where it turns back."""
    work, path, chunk, number = task
    if work == "W" or (work != "F" and chunk == 0):
        return None
    if work == "F":
        return ("F", path, chunk + 1, number) if chunk < chunks - 1 else ("B", path, chunk, number)
    return "B", path, chunk - 1, number


def _took(slot: tuple[_Task, ...], ticks: Sequence[ChunkTicks], last: int) -> int:
    """How long a slot takes; passes beside each other are what they are in the middle of the step."""
    if len(slot) == 2:
        (_, _, forward, _), (_, _, backward, _) = slot
        one, other = ticks[forward], ticks[backward]
        return one.forward + other.inputs + other.weights - min(one.gained, other.gained)
    ((work, _, chunk, number),) = slot
    own = ticks[chunk]
    if work == "F":
        return own.first_forward if number == 0 and own.first_forward is not None else own.forward
    usual = {"B": own.inputs + own.weights, "I": own.inputs, "W": own.weights}[work]
    if work == "I" or number != last or own.last_backward is None:
        return usual
    return usual + own.last_backward - own.inputs - own.weights


def _turns(pipeline: Pipeline, rank: int, ranks: int, microbatches: int) -> list[tuple[_Task, ...]]:
    match pipeline.kind:
        case PipelineKind.INTERLEAVED:
            turns = _looped(rank, ranks, pipeline.chunks, microbatches)
        case PipelineKind.DUAL:
            return _both_ends(rank, ranks, microbatches)
        case kind:
            turns = _by_memory(rank, ranks, microbatches, split=kind is PipelineKind.ZERO_BUBBLE)
    return [((work, 0, chunk, number),) for work, chunk, number in turns]


def _by_memory(rank: int, ranks: int, microbatches: int, *, split: bool) -> list[tuple[str, int, int]]:
    """A rank may hold so many microbatches, and computes backward whatever it may not go forward with.

    With gradients of weights apart as many of these may wait as are missing to the memory of the first rank (ZB-H1).
    """
    turns, held, forward, backward, weights = list[tuple[str, int, int]](), 0, 0, 0, 0
    while backward < microbatches:
        if held < ranks - rank and forward < microbatches:
            turns.append(("F", rank, forward))
            forward, held = forward + 1, held + 1
            continue
        turns.append(("I" if split else "B", rank, backward))
        backward, held = backward + 1, held - 1
        if split and backward - weights == rank + 1:
            turns.append(("W", rank, weights))
            weights += 1
    return turns + [("W", rank, number) for number in range(weights, microbatches) if split]


def _looped(rank: int, ranks: int, chunks: int, microbatches: int) -> list[tuple[str, int, int]]:
    """The list of Megatron-LM: chunks in rounds of as many microbatches as there are ranks."""
    rounds = [range(at, at + ranks) for at in range(0, microbatches, ranks)]
    ahead = [("F", chunk * ranks + rank, each) for some in rounds for chunk in range(chunks) for each in some]
    behind = [
        ("B", chunk * ranks + rank, each) for some in rounds for chunk in reversed(range(chunks)) for each in some
    ]
    warm = len(ahead) if microbatches == ranks else min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, len(ahead))
    turns = ahead[:warm]
    for number, each in enumerate(behind):
        turns += [*ahead[warm + number : warm + number + 1], each]
    return turns


def _both_ends(rank: int, ranks: int, microbatches: int) -> list[tuple[_Task, ...]]:
    """The eight steps of DualPipe's published program; ``F0`` goes forward with what comes from the near end."""
    near, behind = min(rank, ranks - 1 - rank), ranks // 2 - 1 - min(rank, ranks - 1 - rank)
    steps = ["F0"] * (2 * behind) + ["F0", "F1"] * (near + 1) + ["I1", "W", "F1"] * behind
    steps += (["F0", "B1"] if behind == 0 else ["F0 B1"]) + ["F1 B0"]
    steps += ["F0 B1", "F1 B0"] * (microbatches // 2 - ranks + near) + ["B1", "F1 B0"] * behind
    apart = (near + 1) // 2 * 2 + (near + 1) % 2  # from this one on gradients of weights are left for later
    steps += [f"{'I' if place >= apart else 'B'}{1 - place % 2}" for place in range(2 * near + 2)]
    steps += ["W", "I0"] * behind + ["W"] * (near + 1)
    done, waiting, slots = Counter[str](), deque[_Task](), list[tuple[_Task, ...]]()
    for step in steps:
        slot = list[_Task]()
        for word in step.split():
            work = word[0]
            if work == "W":
                slot.append(waiting.popleft())
                continue
            path = int(word[1]) ^ (rank >= ranks // 2)
            counted = f"{'F' if work == 'F' else 'B'}{path}"
            slot.append((work, path, rank if path == 0 else ranks - 1 - rank, done[counted]))
            done[counted] += 1
            if work == "I":
                waiting.append(("W", *slot[-1][1:]))
        slots.append(tuple(slot))
    return slots


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Pipeline, list[ChunkTicks], int, int, int]:
    """A pipeline of any kind whose stages differ, such as those with an embedding or a head."""
    kind, ranks = draw(st.sampled_from(KINDS)), draw(st.integers(1, 6))
    is_dual, is_looped = kind is PipelineKind.DUAL, kind is PipelineKind.INTERLEAVED
    ranks = 2 * -(-ranks // 2) if is_dual else ranks + 1 if is_looped else ranks
    chunks = draw(st.integers(2, 4)) if is_looped else 1
    microbatches = draw(st.integers(1, 4)) * ranks if is_looped else draw(st.integers(1, 14))
    microbatches = 2 * (ranks + microbatches) if is_dual else microbatches
    some = st.integers(1, 1000)
    others = st.none() if is_dual else st.none() | some
    ticks = []
    for _ in range(ranks * chunks):
        forward, inputs = draw(some), draw(some)
        gained = draw(st.integers(0, min(forward, inputs))) if is_dual else 0
        ticks.append(ChunkTicks(forward, inputs, draw(some), gained, draw(others), draw(others)))
    return Pipeline(kind, chunks), ticks, microbatches, draw(st.integers(0, 300)), draw(st.integers(0, 50))


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
)
def test_rounds_that_are_not_run_follow_to_the_tick(
    kind: PipelineKind, ranks: int, chunks: int, ticks: list[int], send: int, slower: int
) -> None:
    """By its period a pipeline ends on every rank when it does by all its microbatches, and computes as long.

    Where each stage is ``slower`` than the one before, it may be long until there is a period.
    """
    pipeline = Pipeline(kind, chunks if kind is PipelineKind.INTERLEAVED else 1)
    stages = [ChunkTicks(ticks[0] + slower * number, *ticks[1:]) for number in range(ranks * pipeline.chunks)]
    microbatches = 20 * ranks * (pipeline.chunks + 2) + 2 * ranks
    whole = run_pipeline(pipeline, stages, microbatches, send, most_tasks=10**9)
    some = run_pipeline(pipeline, stages, microbatches, send, most_tasks=0)
    assert whole.simulated == microbatches and (slower or some.simulated < microbatches)
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
