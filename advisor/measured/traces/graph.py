"""A run as a graph: every kernel, what it does where that is known, and what it may have waited for.

A trace does not say which kernel reads what. What had ended when a kernel began is all that it may have read, so that
it waits for all of that: this is safe, and a schedule that keeps to it is one that the run allows. A GEMM and the
collective whose size fits it (``run.py``) are taken to need nothing else but each other and the weights.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from ....compiler.planning.knobs.library import CHANNELS
from ....compiler.text.units import us_text
from .run import PairShape, TracedCollective, TracedGemm, TracedKernel, TracedRun, Unused, pairs_of
from .workloads import operands_of, pair_call, product_call

SLACK_US = 0.5
"""Times of kernels are rounded: one that ends so long after another began may still have been waited for."""
_ROWS = 4096
"""Rows that each rank has at most of what a collective moves, of which a trace has the size alone."""


@dataclass(frozen=True, slots=True)
class RunOp:
    """A kernel, a collective, or a pair of both, whose ``shape`` is then not None.

    ``needs`` are the places of the ops that it waits for, none of which another one of them waits for. ``idle_us`` is
    how long nothing at all ran right before it, and ``gap_us`` how long after the last of its ``needs`` it began. Of
    several ranks ``longer_us`` is by how much its product took longer than at the rank where it was fastest.
    """

    kernel: TracedKernel | None
    collective: TracedKernel | None = None
    shape: PairShape | None = None
    needs: tuple[int, ...] = ()
    gap_us: float = 0.0
    idle_us: float = 0.0
    longer_us: float = 0.0

    @property
    def parts(self) -> tuple[TracedKernel, ...]:
        """Its kernels."""
        return tuple(each for each in (self.kernel, self.collective) if each is not None)

    @property
    def start_us(self) -> float:
        """When the first of it began."""
        return min(each.start_us for each in self.parts)

    @property
    def end_us(self) -> float:
        """When the last of it ended."""
        return max(each.end_us for each in self.parts)

    @property
    def issued_us(self) -> float:
        """When its kernel began, or the collective if it has none."""
        return self.parts[0].start_us


def graph_of(run: TracedRun, ranks: int) -> tuple[RunOp, ...]:
    """Return the ops of a run in the order in which they were issued.

    Collectives of other than ``ranks``, and those whose sizes are no equal shares, are kernels like any others.
    """
    ops = sorted(_paired(run, ranks), key=lambda op: (op.start_us, op.end_us))
    by_end = sorted(range(len(ops)), key=lambda place: ops[place].end_us)
    ended, at = 0, 0
    behind = list[int]()  # of each op a mask of those that it waits for, and of those that these wait for
    last_of: dict[int, int] = {}
    linked = list[RunOp]()
    for place, op in enumerate(ops):
        while at < len(ops) and ops[by_end[at]].end_us <= op.start_us + SLACK_US:
            ended |= 1 << by_end[at]
            at += 1
        before = ended & ((1 << place) - 1)
        if op.collective is None and op.kernel is not None and op.kernel.stream in last_of:
            before |= 1 << last_of[op.kernel.stream]
        needs = _fewest(before, behind)
        behind.append(_union(behind, needs))
        if op.collective is None and op.kernel is not None:
            last_of[op.kernel.stream] = place
        linked.append(replace(op, needs=needs))
    return _as_issued(with_gaps(linked))


def with_gaps(ops: Sequence[RunOp], begin_us: float | None = None) -> list[RunOp]:
    """The same ops with their gaps; those that need none begin when they can, or after ``begin_us``."""
    found, busy_until = list(ops), float("-inf")
    for place in sorted(range(len(ops)), key=lambda place: (ops[place].start_us, ops[place].end_us)):
        op = ops[place]
        first = op.start_us if begin_us is None else begin_us
        gap = max(0.0, op.start_us - max((ops[need].end_us for need in op.needs), default=first))
        idle = gap if not op.needs and begin_us is not None else op.start_us - busy_until
        found[place] = replace(op, gap_us=gap, idle_us=max(0.0, idle) if busy_until > float("-inf") else gap)
        busy_until = max(busy_until, op.end_us)
    return found


def moved_tensor(moves: TracedCollective) -> tuple[int, int, str] | None:
    """(rows, columns, shard) of elements of 2 bytes that a collective takes; None if they are no whole shares."""
    ranks, given = moves.num_ranks, moves.num_in * moves.element_bytes
    whole = given * ranks if moves.operation == "all_gather" else given
    if not whole or whole % (2 * ranks):
        return None
    rows = ranks * gcd(_ROWS, whole // 2 // ranks)
    return rows, whole // 2 // rows, "rows" if moves.operation == "all_gather" else ""


def _paired(run: TracedRun, ranks: int) -> Iterator[RunOp]:
    """Yield the kernels, collectives and pairs; in a pair the second begins when the first has ended."""
    pair_of = dict[TracedGemm | TracedCollective, tuple[PairShape, TracedGemm, TracedCollective]]()
    for shape, collective, gemm in pairs_of(run, Unused()):
        first, second = (collective, gemm) if shape.is_gathered else (gemm, collective)
        if (
            shape.num_ranks == ranks
            and first.end_us <= second.start_us + SLACK_US
            and gemm not in pair_of
            and collective not in pair_of
        ):
            pair_of[gemm] = pair_of[collective] = shape, gemm, collective
    kernels = {each.does: each for each in run.kernels if each.does in pair_of}
    for each in run.kernels:
        pair = None if each.does is None else pair_of.get(each.does)
        if pair is not None:
            shape, gemm, collective = pair
            if each.does is gemm:
                yield RunOp(each, kernels[collective], shape)
        elif isinstance(each.does, TracedCollective):
            known = each.does.num_ranks == ranks and moved_tensor(each.does) is not None
            yield RunOp(None, each) if known else RunOp(each)
        else:
            yield RunOp(each)


def _fewest(before: int, behind: Sequence[int]) -> tuple[int, ...]:
    """The fewest of the ops in a mask that stand for all of it."""
    found = list[int]()
    while before:
        last = before.bit_length() - 1
        found.append(last)
        before &= ~(behind[last] | 1 << last)
    return tuple(sorted(found))


def _union(behind: Sequence[int], needs: Sequence[int]) -> int:
    mask = 0
    for need in needs:
        mask |= behind[need] | 1 << need
    return mask


def _as_issued(ops: Sequence[RunOp]) -> tuple[RunOp, ...]:
    """The same ops in the order in which they were issued, each behind those that it needs."""
    issued = list[float]()
    for op in ops:
        issued.append(max([op.issued_us, *(issued[need] for need in op.needs)]))
    order = sorted(range(len(ops)), key=lambda place: (issued[place], place))
    at = {place: number for number, place in enumerate(order)}
    return tuple(replace(ops[place], needs=tuple(sorted(at[need] for need in ops[place].needs))) for place in order)


# A graph of a run as text: a workload with all of its ops, and the schedule by which it ran.
#
# What is no product and no collective is ``timed``: a kernel of the time that was measured, which takes all SMs or as
# many as it has thread blocks. Times in which nothing ran are kept: as a delay of such a kernel, or as one that takes
# an SM where a product or a collective follows.

LEAST_GAP_US = 0.3
"""Shorter times between kernels are what a stream needs to begin the next one."""
_WORD = re.compile(r"[A-Za-z0-9_]+")
_TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class NamedOp:
    """An op, its name in the text, and that of the op behind which its collective begins, empty if it has none."""

    name: str
    op: RunOp
    behind: str


@dataclass(slots=True)
class _Line:
    """A definition; ``like`` is the tensor as which a timed kernel leaves its result, None as long as that is open."""

    name: str
    call: str = ""
    timed: str = ""
    like: str | None = None
    needs: tuple[str, ...] = ()
    note: str = ""

    def text(self) -> str:
        if self.timed:
            operands = [*((self.like,) if self.like else ()), *self.needs]
            return f"  {self.name} = timed({', '.join(operands)}, {self.timed})"
        return f"  {self.name} = {self.call}{self.note}"


@dataclass(slots=True)
class GraphWriter:
    """Writes the ops of one graph for GPUs with ``sms`` SMs, in the order in which they were issued.

    ``launch_us`` is what the simulator adds in front of a product or a collective: so much shorter is the time before.
    ``ranks`` are the ops as each rank ran them, in the order of ranks.
    """

    ops: Sequence[RunOp]
    sms: int
    launch_us: float
    ranks: Sequence[Sequence[RunOp]]
    named: list[NamedOp] = field(default_factory=list)
    _tensors: dict[str, str] = field(default_factory=dict)
    _lines: list[_Line] = field(default_factory=list)
    _by_name: dict[str, _Line] = field(default_factory=dict)
    _issued: list[tuple[float, str]] = field(default_factory=list)
    _separate: list[str] = field(default_factory=list)
    _on: dict[int, list[str]] = field(default_factory=dict)
    _left: list[str] = field(default_factory=list)  # what those that need an op wait for
    _behind: dict[int, str] = field(default_factory=dict)  # the last that an op waits for, by its number

    def workload(self, name: str, system: str) -> str:
        """Return the workload."""
        for number, op in enumerate(self.ops):
            self._write(number, op)
        free = self._tensor("bf16", 1, 1)
        for line in self._lines:
            if line.timed and line.like is None and not line.needs:
                line.like = free
        tensors = [f"  {each} = {said}" for said, each in self._tensors.items()]
        return "\n".join([f"workload {name} on {system} {{", *tensors, *(each.text() for each in self._lines), "}"])

    def schedule(self, name: str, workload: str, engine: str) -> str:
        """Return the schedule by which it ran; ``engine`` moves what collectives move, empty for the usual one."""
        if len(self._lines) == 1:  # nothing to order
            return f"schedule {name} for {workload} = serial{f'(engine={engine})' if engine and self._separate else ''}"
        by = f" by {engine}" if engine else ""
        said = [f"  separate {', '.join(self._separate)}{by}"] if self._separate else []
        said.extend(f"  stream {stream} {', '.join(names)}" for stream, names in enumerate(self._streams(), 1))
        order = ", ".join(name for _, name in sorted(self._issued, key=lambda each: each[0]))
        return "\n".join([f"schedule {name} for {workload} {{", *said, f"  order {order}", "}"])

    def _write(self, number: int, op: RunOp) -> None:
        does, moves = op.kernel and op.kernel.does, op.collective and op.collective.does
        needs = tuple(self._left[need] for need in op.needs)
        if op.shape is not None:
            name = self._pair(number, op.shape, op, needs)
        elif isinstance(moves, TracedCollective) and op.collective is not None:
            name = self._collective(number, moves, op, needs)
        elif isinstance(does, TracedGemm):
            name = self._gemm(number, does, op, needs)
        else:
            assert op.kernel is not None, "an op has a kernel or a collective"
            name = f"{_word(op.kernel.name)}_{number}"
            took = [each.kernel.took_us for each in self._each(number) if each.kernel is not None]
            self._timed(name, took, [each.gap_us for each in self._each(number)], self._sms_of(op.kernel), needs)
            self._issue(op.start_us, name, op.kernel)
        gathers = op.shape is None or op.shape.is_gathered
        self.named.append(NamedOp(name, op, self._behind.get(number, "") if gathers else name))
        self._left.append(self._longer(number, name, op))

    def _each(self, number: int) -> Sequence[RunOp]:
        """An op as each rank ran it."""
        return [ops[number] for ops in self.ranks]

    def _longer(self, number: int, name: str, op: RunOp) -> str:
        """What those that need an op wait for: itself, or what it takes longer at some ranks behind a gathered pair."""
        longer = [each.longer_us for each in self._each(number)]
        if not _is_gathered(op) or max(longer) < LEAST_GAP_US:
            return name
        said = f"longer_{number}"
        self._timed(said, longer, [0.0], 1, ()).like = name
        self._issue(op.end_us, said, op.kernel)
        return said

    def _issue(self, us: float, name: str, kernel: TracedKernel | None = None) -> None:
        """Put a part into the order of issue, and into the stream of its kernel."""
        self._issued.append((us, name))
        if kernel is not None:
            self._on.setdefault(kernel.stream, []).append(name)

    def _pair(self, number: int, shape: PairShape, op: RunOp, needs: tuple[str, ...]) -> str:
        left, right = operands_of(shape)
        x = self._operand(number, self._tensor(shape.dtype.value, *left), needs)
        w = self._tensor(shape.dtype.value, *right)
        word = f"{shape.operation}_gemm" if shape.is_gathered else f"gemm_{shape.operation}"
        name = self._call(f"{word}_{number}", pair_call(shape, x, w), op)
        self._separate.append(name)
        kernel, collective = op.parts
        self._issue(kernel.start_us, name, kernel)
        self._issue(collective.start_us, f"{name}.{shape.operation}")
        return name

    def _gemm(self, number: int, gemm: TracedGemm, op: RunOp, needs: tuple[str, ...]) -> str:
        x = self._operand(number, self._tensor(gemm.dtype.value, gemm.m, gemm.k), needs)
        w = self._tensor(gemm.dtype.value, gemm.groups * gemm.k, gemm.n)
        name = self._call(f"gemm_{number}", product_call(x, w, gemm.m, gemm.groups), op)
        self._issue(op.start_us, name, op.kernel)
        return name

    def _collective(self, number: int, moves: TracedCollective, op: RunOp, needs: tuple[str, ...]) -> str:
        """A collective alone: of elements of two bytes, as many as have the bytes that move."""
        tensor = moved_tensor(moves)
        assert tensor is not None, "others are taken for kernels of the time that they took"
        x = self._operand(number, self._tensor("bf16", *tensor), needs, only_idle=True)
        name = self._call(f"{moves.operation}_{number}", f"{moves.operation}({x})", op)
        self._separate.append(name)
        self._issue(op.start_us, name)
        return name

    def _call(self, name: str, call: str, op: RunOp) -> str:
        took = ", ".join(us_text(part.took_us) for part in op.parts)
        line = _Line(name, call, note=f"  # took {took}")
        self._lines.append(line)
        return name

    def _timed(
        self, name: str, took: Sequence[float], gaps: Sequence[float], sms: int, needs: tuple[str, ...]
    ) -> _Line:
        gaps = [gap if gap >= LEAST_GAP_US else 0.0 for gap in gaps]
        after = f", after={_times_text(gaps)}" if any(gaps) else ""
        said = f"takes={_times_text(took)}{after}{f', sms={sms}' if sms else ''}"
        line = _Line(name, timed=said, needs=needs)
        self._lines.append(line)
        self._by_name[name] = line
        return line

    def _operand(self, number: int, tensor: str, needs: tuple[str, ...], *, only_idle: bool = False) -> str:
        """What an op takes: ``tensor``, or that behind what it waits for, and behind the time in which nothing ran."""
        op, gaps = self.ops[number], list[float]()
        for each in self._each(number):
            gap = (min(each.gap_us, each.idle_us) if only_idle else each.gap_us) - self.launch_us
            longer = 0.0 if _is_gathered(op) else each.longer_us
            gaps.append((gap if gap >= LEAST_GAP_US else 0.0) + longer)
        waits = max(gaps) >= LEAST_GAP_US
        if not needs and not waits:
            return tensor
        line = self._by_name.get(needs[0]) if len(needs) == 1 else None
        if line is not None and not waits and line.like in (None, tensor):
            line.like = tensor
            self._behind[number] = line.name
            return line.name
        self._behind[number] = name = f"before_{number}"
        self._timed(name, gaps, [0.0], 1, needs).like = tensor
        self._issue(op.start_us, name, op.kernel)
        return name

    def _tensor(self, dtype: str, rows: int, cols: int, shard: str = "") -> str:
        said = f"{_TENSOR} {dtype}[{rows}, {cols}]{f' shard {shard}' if shard else ''}"
        return self._tensors.setdefault(said, f"t{len(self._tensors)}")

    def _sms_of(self, kernel: TracedKernel) -> int:
        """The SMs of a kernel, 0 for all; a collective has as many as the library's."""
        blocks = kernel.blocks or (CHANNELS if isinstance(kernel.does, TracedCollective) else 0)
        return blocks if 0 < blocks < self.sms else 0

    def _streams(self) -> Iterator[list[str]]:
        """The names of the kernels in each stream but the one in which they take most time."""
        took = Counter[int]()
        for op in self.ops:
            if op.kernel is not None:
                took[op.kernel.stream] += round(1000 * (op.kernel.end_us - op.kernel.start_us))
        main = max(took, key=lambda stream: (took[stream], -stream), default=0)
        yield from (names for stream, names in sorted(self._on.items()) if stream != main)


def _is_gathered(op: RunOp) -> bool:
    return op.shape is not None and op.shape.is_gathered


def _times_text(times: Sequence[float]) -> str:
    """``12.000 us``, or where ranks differ a list."""
    said = [f"{max(0.0, each):.3f} us" for each in times]
    return said[0] if len(set(said)) == 1 else f"[{', '.join(said)}]"


def _word(kernel: str) -> str:
    """A short name of a kernel: the last word of what stands before its arguments."""
    words = _WORD.findall(re.split(r"[<(]", kernel, maxsplit=1)[0])
    word = words[-1].lower()[:24].strip("_") if words else ""
    return word if word and not word[0].isdigit() else f"kernel{word}"
