"""Pipelines that are drawn, and an executor of messages of its own that says when each rank ends."""

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from hypothesis import strategies as st

from magus.compiler.ir.step import PassKind, Pipeline, PipelineKind
from magus.simcore.steps.pipeline import ChunkTicks, SendMet

KINDS = list(PipelineKind)


_Task = tuple[str, int, int, int]
"""What is computed, F, B, I or W, of which path, chunk and microbatch."""

_NOTHING: _Task = ("", 0, 0, 0)


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
    free, events = [0] * ranks, [(0, rank, _NOTHING) for rank in range(ranks)]
    heapq.heapify(events)
    due, flights = dict[_Task, int](), list[_Flight]()
    while events:
        now, rank, message = heapq.heappop(events)
        if now < due.get(message, now):
            continue  # it was put off
        inbox.add(message)
        if now < free[rank] or not turns[rank] or any(_taken(task) not in inbox for task in turns[rank][0]):
            continue
        slot, met = turns[rank].popleft(), 0
        for flight in (each for each in flights if rank in each.ends and each.leaves <= now < each.comes):
            share = Fraction(flight.comes - now, send) if send else Fraction(0)
            longer, later = (sum(at) for at in zip((0, 0), *_meets(slot, ticks), strict=True))
            met += int(longer * share)
            for each in flight.messages:
                due[each] = max(due[each], flight.comes + int(later * min(share, 1)))
                heapq.heappush(events, (due[each], flight.ends[1], each))
        free[rank] = now + _took(slot, ticks, per_path - 1) + met
        heapq.heappush(events, (free[rank], rank, _NOTHING))
        made = [each for each in map(partial(_made, chunks), slot) if each is not None]
        away = [each for each in made if _home(each, ranks) != rank]
        later = free[rank] + (beside if len(made) == 2 and not any(_turns_back(slot, chunks)) else 0)
        for each in made:
            due[each] = later + (send if each in away else 0)
            heapq.heappush(events, (due[each], _home(each, ranks), each))
        if away:
            flights.append(_Flight((rank, _home(away[0], ranks)), free[rank], later + send, away))
    assert not any(turns), "all has been computed"
    return tuple(free)


@dataclass(frozen=True)
class _Flight:
    """Messages on their way between two ranks, from when to when if nothing else is there."""

    ends: tuple[int, int]
    leaves: int
    comes: int
    messages: list[_Task]


def _home(message: _Task, ranks: int) -> int:
    _, path, chunk, _ = message
    return chunk % ranks if path == 0 else ranks - 1 - chunk % ranks


def _meets(slot: tuple[_Task, ...], ticks: Sequence[ChunkTicks]) -> list[tuple[int, int]]:
    """How much longer each pass of a slot takes beside a message, and that."""
    return [each[1:] for work, _, chunk, _ in slot for each in ticks[chunk].meets if each.work.value == work]


def _taken(task: _Task) -> _Task:
    """What a task waits for; gradients of weights for nothing that comes."""
    work, path, chunk, number = task
    return _NOTHING if work == "W" else ("F" if work == "F" else "B", path, chunk, number)


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
    usual = {"B": own.inputs + own.weights, "I": own.inputs - own.sooner, "W": own.weights}[work]
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
        meets = tuple(SendMet(work, draw(st.integers(0, 80)), draw(st.integers(0, 80))) for work in PassKind)
        of_one = forward, inputs, draw(some), gained, draw(others), draw(others)
        ticks.append(ChunkTicks(*of_one, meets=meets, sooner=draw(st.integers(0, inputs - 1))))
    return Pipeline(kind, chunks), ticks, microbatches, draw(st.integers(0, 300)), draw(st.integers(0, 50))
