"""The time of a joint schedule from the times of its ops alone: which small changes are worth a simulation.

Parts are placed in the order in which they are issued: kernels behind each other, lone collectives behind each other,
and each part behind what it reads. Copies that meet on the links delay the later ones; kernels take longer beside
copies of other ops, and stand still while a sum has their SMs. Caches, waves of tiles and priorities are not in it.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...compiler.ir import Made, Op, OpMode, Schedule, Workload
from ...compiler.planning.parts import collective_name, issue_order
from ...compiler.planning.plan import choice_of_layers, layers_of, own_name
from .joint import LayerSpace, few_layers
from .op_runs import Uses
from .options import OpOption

RECENT = 8
"""Copies and sums that a part may still meet: those placed last."""

BESIDE_KERNELS = 1.15
"""Factor by which copies in pieces are slower beside GEMMs than alone: 1.09 to 1.21 in simulations of H100."""


def estimated_ticks(space: LayerSpace, choice: Schedule) -> int:
    """Return the estimated time of all layers of the workload of ``space`` under a ``choice`` that cuts it so.

    Raises
    ------
    PlanError
        If the order cannot be kept.
    """
    return LayerEstimates(space).ticks(choice)


@dataclass(slots=True)
class LayerEstimates:
    """Estimates of many schedules of one ``space``, for which its layers are written out once."""

    space: LayerSpace
    _written: dict[int, tuple[Workload, dict[str, Op]]] = field(default_factory=dict)  # by the number of layers

    def ticks(self, choice: Schedule) -> int:
        """Return ``estimated_ticks`` of ``choice``.

        Raises
        ------
        PlanError
            As ``estimated_ticks``.
        """
        count = self.space.workload.num_layers
        few = few_layers(count, choice)
        if few not in self._written:
            written = layers_of(self.space.workload, few)
            self._written[few] = written, {op.name: op for op in written.ops}
        written, ops = self._written[few]
        of_layers = choice_of_layers(replace(choice, batches=1, groups=()), few)
        clock = _Clock(self.space, ops, of_layers)
        ends = [0] * (few + 1)
        for part in issue_order(written, of_layers):
            layer = clock.run(part)
            ends[layer] = max(ends[layer], clock.main_end)
        shown = max(1, few - choice.layers_shifted)
        return clock.end + (count - few) * (ends[shown] - ends[shown - 1])


class _Meets(NamedTuple):
    """What kernels meet: copies of an op with a ``share`` of the links, or a sum, which stops them."""

    op: str
    begin: int
    end: int
    share: float
    uses: Uses | None = None  # None: a sum


class _Kernel(NamedTuple):
    """The kernel that was placed last, and how long it takes without what it meets."""

    op: str
    begin: int
    length: int


@dataclass(slots=True)
class _Clock:
    """What is placed so far, in ticks."""

    space: LayerSpace
    ops: dict[str, Op]
    choice: Schedule
    main_end: int = 0
    collectives_end: int = 0
    end: int = 0
    _begins: dict[str, int] = field(default_factory=dict)  # of kernels, by op
    _moved: dict[str, int] = field(default_factory=dict)  # when all copies of an op have arrived
    _ends: dict[str, int] = field(default_factory=dict)
    _met: list[_Meets] = field(default_factory=list)
    _last: _Kernel | None = None
    _modes: dict[str, OpMode] = field(default_factory=dict)
    _options: dict[str, OpOption] = field(default_factory=dict)
    _starts_with: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._modes = {mode.op: mode for mode in self.choice.modes}
        self._starts_with = dict(self.choice.starts_with)

    def run(self, part: str) -> int:
        """Place a part, and return its layer."""
        op = self.ops[part.partition(".")[0]]
        option = self._option(op)
        if op.shape.is_collective or (option.is_separate and part == collective_name(op)):
            self._collective(op, option)
        elif option.is_separate or op.shape.moved is None:
            self._kernel(op, option)
        else:
            self._together(op, option)
        self.end = max(self.end, self._ends.get(op.name, 0))
        return op.layer

    def _option(self, op: Op) -> OpOption:
        own = own_name(op.name)  # all layers have the same
        if own not in self._options:
            of, wanted = self.space.op_options[own], self._modes.get(own, OpMode(own))
            usual = _serial(of[0], op) if op.is_pair else of[0]
            self._options[own] = next((option for option in of if option.mode == wanted), usual)
        return self._options[own]

    def _ready(self, op: Op, *, moves: bool | None) -> int:
        """When operands are there: those of copies, of the kernel, or all."""
        times = [0]
        for read in op.reads:
            if read.made_by and (moves is None or read.moves is moves):
                times.append((self._moved if read.what is Made.MOVED else self._ends)[read.made_by])
        return max(times)

    def _collective(self, op: Op, option: OpOption) -> None:
        begin = max(self.collectives_end, self._ready(op, moves=None if op.shape.is_collective else True))
        if op.shape.pattern.produces and op.name in self._ends:
            begin = max(begin, self._ends[op.name])
        if op.name in self._starts_with:
            begin = max(begin, self._begins.get(self._starts_with[op.name], 0))
        elif not any(read.made_by for read in op.reads):
            begin = max(begin, self.main_end)
        length = int((option.copies[1] - option.sums) * (BESIDE_KERNELS if option.is_paced else 1))
        arrived = self._copied(op, begin, length, self._share(op, length))
        end = arrived + option.sums
        if option.sums:
            self._meet(_Meets(op.name, arrived, end, 0.0))
        self.collectives_end = self._moved[op.name] = end
        if op.shape.is_collective or op.shape.pattern.produces:
            self._ends[op.name] = end

    def _kernel(self, op: Op, option: OpOption) -> None:
        begin = max(self.main_end, self._ready(op, moves=False if op.is_pair else None))
        if op.is_pair and not op.shape.pattern.produces:
            begin = max(begin, self._moved[op.name])
        if op.name in self.choice.chained:
            self._run_chained(op, option)
        else:
            self._run(op, begin, option.kernel)
        self._ends[op.name] = self.main_end

    def _run_chained(self, op: Op, option: OpOption) -> None:
        """Run a GEMM that is chained to the pair before it: it ends no earlier than the two do alone."""
        pair = self._option(self.ops[op.takes_rows_of])
        others = [self._ends[read.made_by] for read in op.reads if read.made_by not in ("", op.takes_rows_of)]
        begin = max(self.main_end, *others, 0)
        end = self._ends[op.takes_rows_of] + max(0, pair.with_next - pair.total)
        self._run(op, begin, max(option.kernel, end - begin))

    def _together(self, op: Op, option: OpOption) -> None:
        begin = max(self.main_end, self._ready(op, moves=False))
        moves = max(self._ready(op, moves=True), 0 if op.shape.pattern.consumes else begin)
        length = option.copies[1] - option.copies[0]
        arrived = self._copied(op, moves + option.copies[0], length, self._share(op, length))
        late = arrived - (moves + option.copies[1])
        kernel = option.kernel
        if op.shape.pattern.consumes:  # what has arrived before the kernel begins is not waited for
            kernel = max(self.space.kernels[own_name(op.name)], moves + option.kernel + late - begin)
        self._run(op, begin, kernel)
        self._moved[op.name] = arrived
        self._ends[op.name] = max(self.main_end, arrived) + max(0, option.total - max(option.kernel, option.copies[1]))

    def _share(self, op: Op, length: int) -> float:
        """The share of the links that copies take which last so long."""
        return min(1.0, self.space.copies[own_name(op.name)] / max(1, length))

    def _run(self, op: Op, begin: int, length: int) -> None:
        """Run a kernel on the main stream."""
        kernel = _Kernel(op.name, begin, length)
        self._begins[op.name], self._last, self.main_end = begin, kernel, self._slowed(kernel)

    def _copied(self, op: Op, begin: int, length: int, share: float) -> int:
        """When copies end that begin then, later by what they meet on the links."""
        end = begin + length
        for other in self._met[-RECENT:]:
            meet = min(end, other.end) - max(begin, other.begin)
            if meet > 0 and share + other.share > 1:
                end += int(meet * (share + other.share - 1))
        self._meet(_Meets(op.name, begin, end, share, self.space.copy_uses[own_name(op.name)]))
        return end

    def _meet(self, other: _Meets) -> None:
        """Take note of copies or a sum; the kernel that was placed before may take longer for them."""
        self._met.append(other)
        before, last = self.main_end, self._last
        if last is not None and other.begin < before and other.op != last.op:
            self.main_end = self._slowed(last)
            if last.op in self._ends:
                self._ends[last.op] += self.main_end - before

    def _slowed(self, kernel: _Kernel) -> int:
        """When a kernel ends beside what it meets."""
        now, left = kernel.begin, float(kernel.length)
        met = [each for each in self._met[-RECENT:] if each.end > now and each.op != kernel.op]
        if not met:
            return now + kernel.length
        uses = self.space.kernel_uses[own_name(kernel.op)]
        for until in sorted({time for each in met for time in (each.begin, each.end) if time > now}):
            rate = min((_rate(uses, each) for each in met if each.begin <= now < each.end), default=1.0)
            if left <= (until - now) * rate:
                return now + int(left / rate)
            left -= (until - now) * rate
            now = until
        return now + int(left)


def _rate(uses: Uses, other: _Meets) -> float:
    return 0.0 if other.uses is None else uses.beside(other.uses, other.share)


def _serial(option: OpOption, op: Op) -> OpOption:
    """A pair that is carried out in the usual way: one half behind the other, as one part."""
    mode = OpMode(op.name)
    if op.shape.pattern.produces:
        return replace(option, mode=mode, copies=(option.kernel, option.kernel + option.copies[1]))
    return replace(option, mode=mode, kernel=option.total)
