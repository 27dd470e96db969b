"""A graph of a run as text: a workload with all of its ops, and the schedule by which it ran.

What is no product and no collective is ``timed``: a kernel of the time that was measured, which takes all SMs or as
many as it has thread blocks. Times in which nothing ran are kept: as a delay of such a kernel, or as one that takes an
SM where a product or a collective follows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....compiler.planning.knobs.library import CHANNELS
from ....compiler.text.units import us_text
from .graph import RunOp, moved_tensor
from .run import PairShape, TracedCollective, TracedGemm, TracedKernel
from .workloads import operands_of, pair_call, product_call

LEAST_GAP_US = 0.3
"""Shorter times between kernels are what a stream needs to begin the next one."""
_WORD = re.compile(r"[A-Za-z0-9_]+")
_TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class NamedOp:
    """An op and its name in the text."""

    name: str
    op: RunOp


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
    """

    ops: Sequence[RunOp]
    sms: int
    launch_us: float
    named: list[NamedOp] = field(default_factory=list)
    _tensors: dict[str, str] = field(default_factory=dict)
    _lines: list[_Line] = field(default_factory=list)
    _by_name: dict[str, _Line] = field(default_factory=dict)
    _issued: list[tuple[float, str]] = field(default_factory=list)
    _separate: list[str] = field(default_factory=list)
    _on: dict[int, list[str]] = field(default_factory=dict)

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
        needs = tuple(self.named[need].name for need in op.needs)
        if op.shape is not None:
            name = self._pair(number, op.shape, op, needs)
        elif isinstance(moves, TracedCollective) and op.collective is not None:
            name = self._collective(number, moves, op, needs)
        elif isinstance(does, TracedGemm):
            name = self._gemm(number, does, op, needs)
        else:
            assert op.kernel is not None, "an op has a kernel or a collective"
            name = f"{_word(op.kernel.name)}_{number}"
            self._timed(name, op.kernel.took_us, op.gap_us, self._sms_of(op.kernel), needs)
            self._on.setdefault(op.kernel.stream, []).append(name)
            self._issued.append((op.start_us, name))
        self.named.append(NamedOp(name, op))

    def _pair(self, number: int, shape: PairShape, op: RunOp, needs: tuple[str, ...]) -> str:
        left, right = operands_of(shape)
        x = self._operand(f"before_{number}", self._tensor(shape.dtype.value, *left), op, needs)
        w = self._tensor(shape.dtype.value, *right)
        word = f"{shape.operation}_gemm" if shape.is_gathered else f"gemm_{shape.operation}"
        name = self._call(f"{word}_{number}", pair_call(shape, x, w), op)
        if op.kernel is not None:
            self._on.setdefault(op.kernel.stream, []).append(name)
        self._separate.append(name)
        for part, said in zip(op.parts, (name, f"{name}.{shape.operation}"), strict=True):
            self._issued.append((part.start_us, said))
        return name

    def _gemm(self, number: int, gemm: TracedGemm, op: RunOp, needs: tuple[str, ...]) -> str:
        x = self._operand(f"before_{number}", self._tensor(gemm.dtype.value, gemm.m, gemm.k), op, needs)
        w = self._tensor(gemm.dtype.value, gemm.groups * gemm.k, gemm.n)
        name = self._call(f"gemm_{number}", product_call(x, w, gemm.m, gemm.groups), op)
        assert op.kernel is not None
        self._on.setdefault(op.kernel.stream, []).append(name)
        self._issued.append((op.start_us, name))
        return name

    def _collective(self, number: int, moves: TracedCollective, op: RunOp, needs: tuple[str, ...]) -> str:
        """A collective alone: of elements of two bytes, as many as have the bytes that move."""
        tensor = moved_tensor(moves)
        assert tensor is not None, "others are taken for kernels of the time that they took"
        x = self._operand(f"before_{number}", self._tensor("bf16", *tensor), op, needs, only_idle=True)
        name = self._call(f"{moves.operation}_{number}", f"{moves.operation}({x})", op)
        self._separate.append(name)
        self._issued.append((op.start_us, name))
        return name

    def _call(self, name: str, call: str, op: RunOp) -> str:
        took = ", ".join(us_text(part.took_us) for part in op.parts)
        line = _Line(name, call, note=f"  # took {took}")
        self._lines.append(line)
        return name

    def _timed(self, name: str, took: float, gap: float, sms: int, needs: tuple[str, ...]) -> _Line:
        after = f", after={gap:.3f} us" if gap >= LEAST_GAP_US else ""
        said = f"takes={took:.3f} us{after}{f', sms={sms}' if sms else ''}"
        line = _Line(name, timed=said, needs=needs)
        self._lines.append(line)
        self._by_name[name] = line
        return line

    def _operand(self, name: str, tensor: str, op: RunOp, needs: tuple[str, ...], *, only_idle: bool = False) -> str:
        """What an op takes: ``tensor``, or that behind what it waits for, and behind the time in which nothing ran."""
        gap = min(op.gap_us, op.idle_us) if only_idle else op.gap_us
        gap = gap - self.launch_us if gap - self.launch_us >= LEAST_GAP_US else 0.0
        if not needs and not gap:
            return tensor
        line = self._by_name.get(needs[0]) if len(needs) == 1 else None
        if line is not None and not gap and line.like in (None, tensor):
            line.like = tensor
            return line.name
        self._timed(name, gap, 0.0, 1, needs).like = tensor
        if op.kernel is not None:
            self._on.setdefault(op.kernel.stream, []).append(name)
        self._issued.append((op.start_us, name))
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


def _word(kernel: str) -> str:
    """A short name of a kernel: the last word of what stands before its arguments."""
    words = _WORD.findall(re.split(r"[<(]", kernel, maxsplit=1)[0])
    word = words[-1].lower()[:24].strip("_") if words else ""
    return word if word and not word[0].isdigit() else f"kernel{word}"
