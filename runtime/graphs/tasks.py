"""Steps of all parts of a plan as tasks, with what each waits for in other parts and in its stream.

Names of steps and signals begin with that of their part. Queues are shared: a stream of the plan, and a lane or the
engines of a rank, have one thread, or those of engines, for all parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import (
    Awaited,
    EngineKind,
    GraphPlan,
    IndexRange,
    Part,
    PartWait,
    Region,
    Scenario,
    Schedule,
    Step,
    System,
    TileGroup,
    Transfer,
)
from ..tasks import Mark, Queue, Task, landing_ranks, source_ranks, tasks_of

MEMORY: str = "memory"
"""The queue that frees memory."""
_NOWHERE = Region(0, IndexRange(0, 0), IndexRange(0, 0))


@dataclass(frozen=True, slots=True)
class GraphTasks:
    """``all`` tasks in the order of their numbers, those ``of_part`` by its name, and those that free what an op holds.

    ``frees`` has for the number of such a task the op.
    """

    all: tuple[Task, ...]
    of_part: dict[str, tuple[Task, ...]]
    frees: dict[int, str]


def named_in(part: str, schedule: Schedule) -> Schedule:
    """``schedule`` with the name of its part before those of steps and signals."""

    def named(step: Step) -> Step:
        after = tuple(f"{part}.{name}" for name in step.after)
        step = replace(step, name=f"{part}.{step.name}", after=after)
        return replace(step, signal=f"{part}.{step.signal}") if isinstance(step, Transfer) else step

    return replace(
        schedule,
        steps=tuple(map(named, schedule.steps)),
        by_rank=tuple(tuple(map(named, steps)) for steps in schedule.by_rank),
        overrides=tuple(replace(each, step=named(each.step)) for each in schedule.overrides),
    )


def tasks_of_graph(system: System, plan: GraphPlan) -> GraphTasks:
    """Return the tasks of ``plan`` on all ranks."""
    composer = _Composer(system)
    for part in plan.parts:
        composer.add(part)
    for part in plan.parts:
        composer.wait(part)
    frees = composer.free(plan)
    return GraphTasks(tuple(composer.tasks), composer.of_part, frees)


@dataclass(slots=True)
class _Composer:
    """Adds the tasks of all parts, and then what they wait for, part by part."""

    system: System
    tasks: list[Task] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    of_part: dict[str, tuple[Task, ...]] = field(default_factory=dict)
    landed: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)  # by part and rank
    begins: dict[tuple[str, int], tuple[Mark, ...]] = field(default_factory=dict)  # what the first kernel waits for
    last: dict[tuple[int, int, int], list[Mark]] = field(default_factory=dict)  # by rank, stream and stream of the plan

    def add(self, part: Part) -> None:
        """Add the tasks of a part."""
        n, schedule = self.system.num_ranks, named_in(part.name, part.schedule)
        own = tasks_of(Scenario(part.name, self.system, part.workload), schedule)
        for task in own:
            task.number += len(self.tasks)
            task.queue = _queue(part, task)
            if isinstance(task.step, Transfer):
                for rank in landing_ranks(task.step, task.rank, n):
                    self.landed.setdefault((part.name, rank), []).append((rank, task.step.signal))
        self.tasks += own
        self.parts[part.name], self.of_part[part.name] = part, own

    def wait(self, part: Part) -> None:
        """Let the tasks of a part wait for others, and for those of parts before it in its streams."""
        by_rank: list[list[Task]] = [[] for _ in range(self.system.num_ranks)]
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
            if part.workload.is_collective:
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
        n, engine, step = self.system.num_ranks, part.schedule.engine, task.step
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
            case Awaited.LANDED:
                return self.landed.get((wait.on, rank), ())
            case Awaited.BEGUN:
                return self.begins.get((wait.on, rank), ())

    def _end(self, part: str, rank: int) -> list[Mark]:
        """Everything of a part at a rank: its steps there, and what lands; what it waits for where there is nothing."""
        own = [(rank, task.step.name) for task in self.of_part[part] if task.rank == rank]
        return [*own, *self.landed.get((part, rank), ())] or self._whole(self.parts[part], rank)

    def _before(self, part: Part, rank: int, stream: int) -> Iterator[Mark]:
        """What a stream of a plan begins behind: what was there before, and in the stream of its part."""
        for each in dict.fromkeys((stream, 0)):
            yield from self.last.get((rank, part.stream, each), ())
        if part.behind_kernels:
            yield from self.last.get((rank, 0, 0), ())

    def _queue_up(self, part: Part, rank: int, mine: Sequence[Task]) -> None:
        if part.workload.is_collective:
            self.last[rank, part.stream, 0] = [(rank, task.step.name) for task in mine]
            return
        kernels: dict[int, list[Mark]] = {}
        for task in mine:
            if not isinstance(task.step, Transfer):
                kernels.setdefault(task.step.stream, []).append((rank, task.step.name))
        self.last |= {(rank, part.stream, stream): marks for stream, marks in kernels.items()}

    def free(self, plan: GraphPlan) -> dict[int, str]:
        """Add a task for each op that holds memory: it is freed when the op, and all that hold it, have ended."""
        parts: dict[str, list[str]] = {}
        for part in plan.parts:
            parts.setdefault(part.op, []).append(part.name)
        needs = {part.op for part in plan.parts if part.schedule.staging_bytes}
        frees: dict[int, str] = {}
        for op, holders in plan.holders().items():
            if op in needs:
                ends = [name for each in (op, *holders) for name in parts[each]]
                marks = (
                    mark for name in ends for rank in range(self.system.num_ranks) for mark in self._end(name, rank)
                )
                step = TileGroup(f"{op}: free", (_NOWHERE,), IndexRange(0, 0))
                frees[len(self.tasks)] = op
                waits = tuple(dict.fromkeys(marks))
                self.tasks.append(Task(len(self.tasks), 0, step, (0, MEMORY), waits))
        return frees


def _queue(part: Part, task: Task) -> Queue:
    """The queue of a task, which tasks of other parts share."""
    if isinstance(task.step, Transfer):
        return task.rank, f"{part.schedule.engine.kind.value} {task.queue[1]}"
    stream = "collectives" if part.stream < 0 else f"stream {part.stream}"
    return task.rank, stream if not task.step.stream else f"{stream}.{task.step.stream}"
