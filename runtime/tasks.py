"""Steps of all parts of a plan, at all ranks, as tasks: what each waits for, by name, and the queue that takes it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ..compiler.ir import (
    Awaited,
    Direction,
    EngineKind,
    IndexRange,
    Kernels,
    OpPlan,
    Part,
    PartWait,
    Plan,
    Reach,
    Region,
    Step,
    TileGroup,
    Transfer,
    kernels_of,
    queued_behind,
    seen_from,
    sums_of_all,
)

Mark = tuple[int, str]
"""Something that happens at a rank: a step there is done, or a signal has arrived."""
Queue = tuple[int, str]
"""A queue of a rank, by a name for people."""
ENGINE_THREADS = 4
"""Most threads for the transfers of a rank that are in no lane."""
ENGINES, MEMORY = "engines", "memory"
"""The queue of these transfers, and the one that frees memory."""
_NOWHERE = Region(0, IndexRange(0, 0), IndexRange(0, 0))


@dataclass(slots=True, eq=False)
class Task:
    """One step at one rank.

    ``waits`` are the marks that must happen first, ``behind`` the step before it in its queue, if the queue keeps the
    order. ``known`` has the bit ``number`` of each task that is certain to be done before this one begins; it is filled
    in when the task begins.
    """

    number: int
    rank: int
    step: Step
    queue: Queue
    waits: tuple[Mark, ...]
    behind: str = ""
    known: int = 0

    @property
    def moves(self) -> bool:
        """Whether it moves data, and computes nothing."""
        return isinstance(self.step, Transfer)

    def follows(self, number: int) -> bool:
        """Whether the task of that number is certain to be done before this one begins."""
        return bool(self.known >> number & 1)

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.step.name}"


def tasks_of_steps(schedule: OpPlan, num_ranks: int) -> tuple[Task, ...]:
    """Return the tasks of one schedule, each rank's in issue order."""
    persistent = schedule.tactics.kernel is Kernels.PERSISTENT
    steps = [schedule.steps_of(rank) for rank in range(num_ranks)]
    tasks: list[Task] = []
    for rank, mine in enumerate(steps):
        behind = _behind(mine, persistent)
        flags = _flags(steps, rank) if schedule.engine.by_tiles else {}
        for step in mine:
            queued = behind.get(step.name, ())
            names = dict.fromkeys((*step.after, *queued))
            waits = (*((rank, name) for name in names), *flags.get(step.name, ()))
            if isinstance(step, Transfer):
                waits += tuple(((rank + step.peer) % num_ranks, name) for name in step.peer_after)
            last = next(iter(queued), "")
            tasks.append(Task(len(tasks), rank, step, (rank, _queue_of(step, persistent)), waits, last))
    return tuple(tasks)


def landing_ranks(step: Transfer, issuer: int, num_ranks: int) -> tuple[int, ...]:
    """Return the ranks at which a transfer sets its signal; a put to all sets it at its own rank as well."""
    if step.direction is Direction.GET:
        return (issuer,)
    return tuple(range(num_ranks)) if step.reach is Reach.ALL else ((issuer + step.peer) % num_ranks,)


def source_ranks(step: Transfer, issuer: int, num_ranks: int) -> tuple[int, ...]:
    """Return the ranks that a transfer reads from; a switch sums what a get from all reads."""
    if step.direction is Direction.PUT:
        return (issuer,)
    return tuple(range(num_ranks)) if step.reach is Reach.ALL else ((issuer + step.peer) % num_ranks,)


def marks_of(task: Task, num_ranks: int) -> Iterator[Mark]:
    """Yield what happens by the end of a task."""
    yield task.rank, task.step.name
    if isinstance(task.step, Transfer):
        yield from ((rank, task.step.signal) for rank in landing_ranks(task.step, task.rank, num_ranks))


def _behind(steps: tuple[Step, ...], persistent: bool) -> dict[str, list[str]]:
    """Return for each step those before it in its queue; groups of a persistent kernel are taken one by one here."""
    behind: dict[str, list[str]] = {}
    for name, before in queued_behind(steps, persistent=persistent):
        behind.setdefault(name, []).append(before)
    groups = [step.name for step in steps if isinstance(step, TileGroup)] if persistent else []
    for before, name in pairwise(groups):
        behind.setdefault(name, []).append(before)
    return behind


def _flags(steps: list[tuple[Step, ...]], rank: int) -> dict[str, list[Mark]]:
    """Return the kernels of all ranks whose tiles say by flags that what a switch sums is there."""
    n = len(steps)
    return {
        step.name: [
            ((rank + offset) % n, group.name)
            for offset in range(n)
            for group in kernels_of(seen_from(step.region, offset, n), steps[(rank + offset) % n])
        ]
        for step in sums_of_all(steps[rank])
    }


def _queue_of(step: Step, persistent: bool) -> str:
    if isinstance(step, Transfer):
        return ENGINES if step.lane is None else f"lane {step.lane}"
    return "persistent kernel" if persistent and isinstance(step, TileGroup) else f"stream {step.stream}"


@dataclass(frozen=True, slots=True)
class PlanTasks:
    """``all`` tasks in the order of their numbers, those ``of_part`` by its name, and those that free memory.

    ``frees`` has for the number of such a task the op whose memory at the rank of the task it frees.
    """

    num_ranks: int
    all: tuple[Task, ...]
    of_part: dict[str, tuple[Task, ...]]
    frees: dict[int, str]

    def threads(self, plan: Plan) -> dict[Queue, int]:
        """Return the number of threads of each queue: several where transfers are in no lane."""
        threads = {task.queue: 1 for task in self.all}
        for part in plan.parts:
            engines = max(1, min(part.schedule.engine.count, ENGINE_THREADS))
            for task in self.of_part[part.name]:
                if task.queue[1].endswith(ENGINES):
                    threads[task.queue] = max(threads[task.queue], engines)
        return threads


def tasks_of(plan: Plan, num_ranks: int) -> PlanTasks:
    """Return the tasks of ``plan`` on all ranks.

    Names of steps and signals begin with that of their part. A stream of the plan, and a lane or the engines of a rank,
    are one queue for all parts. A part that is alone keeps the names of its steps and queues, and nobody else needs its
    memory.
    """
    composer = _Composer(num_ranks, is_alone=len(plan.parts) == 1)
    for part in plan.parts:
        composer.add(part)
    for part in plan.parts:
        composer.wait(part)
    frees = {} if composer.is_alone else composer.free(plan)
    return PlanTasks(num_ranks, tuple(composer.tasks), composer.of_part, frees)


def _named_in(part: str, schedule: OpPlan) -> OpPlan:
    """``schedule`` with the name of its part before those of steps and signals."""

    def named(step: Step) -> Step:
        after = tuple(f"{part}.{name}" for name in step.after)
        step = replace(step, name=f"{part}.{step.name}", after=after)
        if not isinstance(step, Transfer):
            return step
        there = tuple(f"{part}.{name}" for name in step.peer_after)
        return replace(step, signal=f"{part}.{step.signal}", peer_after=there)

    return replace(
        schedule,
        steps=tuple(map(named, schedule.steps)),
        by_rank=tuple(tuple(map(named, steps)) for steps in schedule.by_rank),
        overrides=tuple(replace(each, step=named(each.step)) for each in schedule.overrides),
    )


@dataclass(slots=True)
class _Composer:
    """Adds the tasks of all parts, and then what they wait for, part by part."""

    num_ranks: int
    is_alone: bool
    tasks: list[Task] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    of_part: dict[str, tuple[Task, ...]] = field(default_factory=dict)
    arrived: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)  # by part and rank
    begins: dict[tuple[str, int], tuple[Mark, ...]] = field(default_factory=dict)  # what the first kernel waits for
    last: dict[tuple[int, int, int], list[Mark]] = field(default_factory=dict)  # by rank, stream and stream of the plan

    def add(self, part: Part) -> None:
        """Add the tasks of a part."""
        n, schedule = self.num_ranks, part.schedule
        own = tasks_of_steps(schedule if self.is_alone else _named_in(part.name, schedule), n)
        for task in own:
            task.number += len(self.tasks)
            if not self.is_alone:
                task.queue = _shared_queue(part, task)
            if isinstance(task.step, Transfer):
                for rank in landing_ranks(task.step, task.rank, n):
                    self.arrived.setdefault((part.name, rank), []).append((rank, task.step.signal))
        self.tasks += own
        self.parts[part.name], self.of_part[part.name] = part, own

    def wait(self, part: Part) -> None:
        """Let the tasks of a part wait for others, and for those of parts before it in its streams."""
        by_rank: list[list[Task]] = [[] for _ in range(self.num_ranks)]
        for task in self.of_part[part.name]:
            by_rank[task.rank].append(task)
        for rank, mine in enumerate(by_rank):
            self._wait(part, rank, mine)
        for rank, mine in enumerate(by_rank):
            kernels = (task for task in mine if isinstance(task.step, TileGroup))
            first = next(kernels, mine[0] if mine else None)
            self.begins[part.name, rank] = () if first is None else first.waits
            self._queue_up(part, rank, mine)

    def _wait(self, part: Part, rank: int, mine: Sequence[Task]) -> None:
        """Let steps wait for other parts, and for what is before them in their streams."""
        by_step: dict[str, list[Mark]] = {}
        for wait in part.step_waits:
            by_step.setdefault(f"{part.name}.{wait.step}", []).append((rank, f"{wait.on}.{wait.of}"))
        streams = set[int]()
        for task in mine:
            marks = by_step.get(task.step.name, [])
            if part.shape.is_collective:
                marks += self._of_collective(part, task)
            elif isinstance(task.step, Transfer):
                marks += [] if task.step.after else self._whole(part, rank, copies=True)
            elif task.step.stream not in streams:
                streams.add(task.step.stream)
                marks += [*self._whole(part, rank), *self._before(part, rank, task.step.stream)]
            task.waits = tuple(dict.fromkeys((*task.waits, *marks)))

    def _of_collective(self, part: Part, task: Task) -> Iterator[Mark]:
        """What a step of a lone collective waits for.

        One kernel or call begins as a whole. A get waits for its peers to say that they have begun, and a call of the
        library for all ranks.
        """
        n, engine, step = self.num_ranks, part.schedule.engine, task.step
        copies = isinstance(step, Transfer) and engine.kind is not EngineKind.SM
        ranks = set() if copies and step.after else {task.rank}
        if engine.by_library:
            ranks = set(range(n))
        if isinstance(step, Transfer):
            ranks |= {source for source in source_ranks(step, task.rank, n) if source != task.rank}
        for rank in sorted(ranks):
            yield from self._whole(part, rank)
            yield from self._before(part, rank, 0)

    def _whole(self, part: Part, rank: int, copies: bool = False) -> list[Mark]:
        """What a part waits for in others at ``rank``, or its ``copies`` do."""
        waits = (wait for wait in part.waits if not (copies and wait.kernels_only))
        return [mark for wait in waits for mark in self._marks(wait, rank)]

    def _marks(self, wait: PartWait, rank: int) -> Iterable[Mark]:
        """What a wait for another part waits for at ``rank``."""
        match wait.what:
            case Awaited.END:
                return self._end(wait.on, rank)
            case Awaited.ARRIVED:
                return self.arrived.get((wait.on, rank), ())
            case Awaited.BEGUN:
                return self.begins.get((wait.on, rank), ())

    def _end(self, part: str, rank: int) -> list[Mark]:
        """All of a part at a rank: its steps there, and what arrives; what it waits for where there is nothing."""
        own = [(rank, task.step.name) for task in self.of_part[part] if task.rank == rank]
        return [*own, *self.arrived.get((part, rank), ())] or self._whole(self.parts[part], rank)

    def _before(self, part: Part, rank: int, stream: int) -> Iterator[Mark]:
        """What a stream of a plan begins behind: what was there before, and in the stream of its part."""
        for each in dict.fromkeys((stream, 0)):
            yield from self.last.get((rank, part.stream, each), ())
        if part.behind_kernels:
            yield from self.last.get((rank, 0, 0), ())

    def _queue_up(self, part: Part, rank: int, mine: Sequence[Task]) -> None:
        if part.shape.is_collective:
            self.last[rank, part.stream, 0] = [(rank, task.step.name) for task in mine]
            return
        kernels: dict[int, list[Mark]] = {}
        for task in mine:
            if not isinstance(task.step, Transfer):
                kernels.setdefault(task.step.stream, []).append((rank, task.step.name))
        self.last |= {(rank, part.stream, stream): marks for stream, marks in kernels.items()}

    def free(self, plan: Plan) -> dict[int, str]:
        """Add tasks for each op that holds memory: it is freed when the op, and all that hold it, have ended.

        Rank 0 waits for all of them at all ranks, and the other ranks for rank 0.
        """
        parts: dict[str, list[str]] = {}
        for part in plan.parts:
            parts.setdefault(part.op, []).append(part.name)
        needs = {part.op for part in plan.parts if part.schedule.staging_bytes}
        frees: dict[int, str] = {}
        for op, holders in plan.holders().items():
            if op not in needs:
                continue
            names = [name for each in (op, *holders) for name in parts[each]]
            ends = dict.fromkeys(
                mark for name in names for rank in range(self.num_ranks) for mark in self._end(name, rank)
            )
            step = TileGroup(f"{op}: free", (_NOWHERE,), IndexRange(0, 0))
            for rank in range(self.num_ranks):
                waits: tuple[Mark, ...] = ((0, step.name),) if rank else tuple(ends)
                frees[len(self.tasks)] = op
                self.tasks.append(Task(len(self.tasks), rank, step, (rank, MEMORY), waits))
        return frees


def _shared_queue(part: Part, task: Task) -> Queue:
    """The queue of a task, which tasks of other parts share."""
    if isinstance(task.step, Transfer):
        return task.rank, f"{part.schedule.engine.kind.value} {task.queue[1]}"
    stream = "collectives" if part.stream < 0 else f"stream {part.stream}"
    return task.rank, stream if not task.step.stream else f"{stream}.{task.step.stream}"
