"""A whole layer as a CP-SAT model: how each op is carried out, and when its kernels and its copies run.

Kernels are intervals on the SMs, one after the other. Copies are intervals on the links with the share of them that
they take, so that those of a pair that overlaps in itself leave room for others. An op begins behind what it needs.
Layers that repeat do so with a period: kernels of one layer are within a period, copies of one may run under kernels of
the next, and what is carried over arrives in time. Times are in units of 0.1 us.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ...compiler.ir import Cancelled, ShouldStop, heeding
from ...compiler.ir.stopping import never
from .model import Solutions, cp_model, make_solver, solve

TICKS = 10_000_000
"""Ticks of 10 fs in the model's unit of time."""

WHOLE_LINK = 100
"""The share of the links that a collective alone takes, in percent."""


@dataclass(frozen=True, slots=True)
class OptionTimes:
    """One way to carry out an op, as ``advisor.layers.options.OpOption`` in the model's unit.

    ``share`` of the links, in percent, is taken while copies run.
    """

    total: int
    kernel: int
    copies: tuple[int, int]
    is_separate: bool = False
    share: int = WHOLE_LINK


@dataclass(frozen=True, slots=True)
class NeededBy:
    """What op ``of`` leaves is needed by an op: what it gathers where ``gathered``, else its result.

    The copies of the op need it where it ``moves``, else its kernel. ``carried`` is what the layer before leaves.
    """

    of: int
    gathered: bool = False
    moves: bool = False
    carried: bool = False


@dataclass(frozen=True, slots=True)
class LayerOp:
    """An op: a kernel, a collective or a pair; of a pair that ``produces`` the kernel comes first."""

    op_options: tuple[OptionTimes, ...]
    has_kernel: bool
    has_copies: bool
    produces: bool = False
    needs: tuple[NeededBy, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerProblem:
    """The ops of a layer, of which there are so many; ``start`` is the option of each, in an order that can be kept.

    Where it ``spans_layers``, kernels of one may run among those of the next, and the period alone is minimised.
    """

    ops: tuple[LayerOp, ...]
    layers: int = 1
    start: tuple[int, ...] = ()
    spans_layers: bool = False


class Placed(NamedTuple):
    """Where an op is: its option, and when its kernel and its copies begin, counted from the begin of its layer."""

    option: int
    kernel: int
    copies: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A solution: the ops as placed, the time of all layers, and when kernels of a layer and of the next begin."""

    ops: tuple[Placed, ...]
    time: int
    begin: int
    next_begin: int


def place_layer(
    problem: LayerProblem, *, seed: int, limit: float, should_stop: ShouldStop = never
) -> tuple[tuple[Placement, ...], int]:
    """Return the placements found, the best first, and what none is faster than, in the model's unit.

    One worker and ``limit`` deterministic seconds: the same problem, seed and limit give the same with the same
    version of OR-tools. There is a placement at least where the limit suffices for the hint, which is the ops in order.
    """
    model = _Model(problem)
    solver, solutions = make_solver(seed), Solutions(model.placement)
    solver.parameters.max_deterministic_time = limit
    # Kernels exclude each other: so the same placements are found in a half to a seventh of the time.
    solver.parameters.use_strong_propagation_in_disjunctive = True
    with suppress(Cancelled), heeding(should_stop):
        solve(solver, model.model, solutions)
        return tuple(reversed(solutions.found)), int(solver.best_objective_bound)
    return tuple(reversed(solutions.found)), 0


class _Times(NamedTuple):
    """Variables of an op; those that it has not are those of what it has."""

    op_options: list[cp_model.IntVar]
    kernel: cp_model.IntVar
    kernel_end: cp_model.IntVar
    copies: cp_model.IntVar
    copies_end: cp_model.IntVar
    end: cp_model.IntVar
    deferred: cp_model.IntVar | None = None  # whether the kernel runs among those of the next layer


class _Model:
    """Variables and constraints of one problem."""

    def __init__(self, problem: LayerProblem) -> None:
        self.model, self._problem = cp_model.CpModel(), problem
        self._most = 2 * sum(
            max(option.total + option.kernel + option.copies[1] for option in op.op_options) for op in problem.ops
        )
        self.period = self._time("period")
        self.ops = [self._op(op) for op in problem.ops]
        self.total = self.model.new_int_var(0, self._most * problem.layers, "total")
        self._needs()
        self._sms()
        self._links()
        self._minimise()
        self._hint()

    def placement(self, value: Callable[[cp_model.IntVar], int]) -> Placement:
        """The placement of a solution, in which variables have a ``value``."""
        ops = tuple(
            Placed(
                next(i for i, chosen in enumerate(op.op_options) if value(chosen)), value(op.kernel), value(op.copies)
            )
            for op in self.ops
        )
        begin = value(self.first)
        return Placement(ops, value(self.total), begin, begin + value(self.period))

    def _time(self, name: str) -> cp_model.IntVar:
        return self.model.new_int_var(0, self._most, name)

    def _op(self, op: LayerOp) -> _Times:
        model = self.model
        op_options = [model.new_bool_var("option") for _ in op.op_options]
        model.add_exactly_one(op_options)
        kernel, copies, end = self._time("kernel"), self._time("copies"), self._time("end")
        kernel_end, copies_end = self._time("kernel_end"), self._time("copies_end")
        if not op.has_copies:
            model.add(copies == kernel)
            model.add(copies_end == kernel_end)
        if not op.has_kernel:
            model.add(kernel == copies)
            model.add(kernel_end == copies_end)
        for chosen, option in zip(op_options, op.op_options, strict=True):
            self._carry_out(op, option, _Times([chosen], kernel, kernel_end, copies, copies_end, end))
        deferred = model.new_bool_var("deferred") if self._problem.spans_layers and op.has_kernel else None
        return _Times(op_options, kernel, kernel_end, copies, copies_end, end, deferred)

    def _carry_out(self, op: LayerOp, option: OptionTimes, times: _Times) -> None:
        """The times of an op that is carried out by one option."""
        model, (chosen,) = self.model, times.op_options
        begin, until = option.copies
        if op.has_kernel:
            model.add(times.kernel_end == times.kernel + option.kernel).only_enforce_if(chosen)
        if op.has_copies:
            model.add(times.copies_end == times.copies + until - begin).only_enforce_if(chosen)
        if not (op.has_kernel and op.has_copies):
            model.add(times.end == times.kernel + option.total).only_enforce_if(chosen)
        elif not option.is_separate:
            model.add(times.copies == times.kernel + begin).only_enforce_if(chosen)
            model.add(times.end == times.kernel + option.total).only_enforce_if(chosen)
        elif op.produces:
            model.add(times.copies >= times.kernel_end).only_enforce_if(chosen)
            model.add(times.end == times.copies_end).only_enforce_if(chosen)
        else:
            model.add(times.kernel >= times.copies_end).only_enforce_if(chosen)
            model.add(times.end == times.kernel_end).only_enforce_if(chosen)

    def _needs(self) -> None:
        """Each op behind what it needs; what the layer before leaves has come a period earlier."""
        for op, times in zip(self._problem.ops, self.ops, strict=True):
            for need in op.needs:
                maker = self.ops[need.of]
                ready = maker.copies_end if need.gathered else maker.end
                begin = times.copies if need.moves else times.kernel
                self.model.add(begin + (self.period if need.carried else 0) >= ready)
                if need.moves and op.has_kernel:  # a pair that overlaps in itself begins with its kernel
                    for chosen, option in zip(times.op_options, op.op_options, strict=True):
                        if not option.is_separate:
                            early = times.kernel + (self.period if need.carried else 0)
                            self.model.add(early >= ready).only_enforce_if(chosen)

    def _sms(self) -> None:
        """Kernels one after the other within a period, of which some may be those of the layer before."""
        model, span = self.model, []
        with_kernel = [(op, times) for op, times in zip(self._problem.ops, self.ops, strict=True) if op.has_kernel]
        first, last = self._time("first"), self._time("last")
        for op, times in with_kernel:
            size = self._time("size")
            model.add(size == sum(b * option.kernel for b, option in zip(times.op_options, op.op_options, strict=True)))
            begin, end = self._in_period(times)
            span.append(model.new_interval_var(begin, size, end, "kernel"))
            model.add(first <= begin)
            model.add(last >= end)
        model.add_no_overlap(span)
        model.add(self.period >= last - first)
        self.first = first
        busy = sum(
            b * option.kernel
            for op, times in with_kernel
            for b, option in zip(times.op_options, op.op_options, strict=True)
        )
        model.add(self.period >= busy)

    def _in_period(self, times: _Times) -> tuple[cp_model.IntVar, cp_model.IntVar]:
        """When the kernel that runs in this layer's time begins and ends: of a late op that of the layer before."""
        if times.deferred is None:
            return times.kernel, times.kernel_end
        model, begin, end = self.model, self._time("in period"), self._time("in period")
        for deferred, earlier in ((times.deferred, self.period), (~times.deferred, 0)):
            model.add(begin == times.kernel - earlier).only_enforce_if(deferred)
            model.add(end == times.kernel_end - earlier).only_enforce_if(deferred)
        return begin, end

    def _links(self) -> None:
        """Copies side by side as far as the links go, also with those of the next layer."""
        model, spans, shares = self.model, [], []
        work: list[cp_model.LinearExprT] = []
        for op, times in zip(self._problem.ops, self.ops, strict=True):
            if not op.has_copies:
                continue
            lengths = [option.copies[1] - option.copies[0] for option in op.op_options]
            size, share = self._time("size"), model.new_int_var(0, WHOLE_LINK, "share")
            model.add(size == sum(b * length for b, length in zip(times.op_options, lengths, strict=True)))
            model.add(share == sum(b * option.share for b, option in zip(times.op_options, op.op_options, strict=True)))
            spans.append(model.new_interval_var(times.copies, size, times.copies_end, "copies"))
            shares.append(share)
            for ahead in range(1, 1 + (self._problem.layers > 1) + self._problem.spans_layers):
                begin, end = (model.new_int_var(0, 3 * self._most, "next") for _ in range(2))
                model.add(begin == times.copies + ahead * self.period)
                model.add(end == times.copies_end + ahead * self.period)
                spans.append(model.new_interval_var(begin, size, end, "next copies"))
                shares.append(share)
            work += [
                b * (length * option.share // WHOLE_LINK)
                for b, length, option in zip(times.op_options, lengths, op.op_options, strict=True)
            ]
        if spans:
            model.add_cumulative(spans, shares, WHOLE_LINK)
            model.add(self.period >= sum(work))

    def _minimise(self) -> None:
        makespan = self._time("makespan")
        for times in self.ops:
            self.model.add(makespan >= times.end)
        self.model.add(self.total == (self._problem.layers - 1) * self.period + makespan)
        if self._problem.layers == 1:
            self.model.add(makespan >= self.period)
            self.model.add(self.period <= makespan)
        # Of many layers the period counts; the rest of the last would be shortened in a thousand steps.
        self.model.minimize(self.period if self._problem.spans_layers else self.total)

    def _hint(self) -> None:
        """Hint the ops one after the other, each behind all of the one before."""
        now = 0
        for op, times, chosen in zip(self._problem.ops, self.ops, self._problem.start, strict=True):
            option = op.op_options[chosen]
            length = option.copies[1] - option.copies[0]
            kernel = now + (length if op.has_copies and option.is_separate and not op.produces else 0)
            copies = (
                now
                if option.is_separate and not op.produces
                else now + option.kernel
                if option.is_separate
                else now + option.copies[0]
            )
            if not op.has_copies:
                copies = kernel
            if not op.has_kernel:
                kernel = copies = now
            for index, variable in enumerate(times.op_options):
                self.model.add_hint(variable, index == chosen)
            self.model.add_hint(times.kernel, kernel)
            self.model.add_hint(times.copies, copies)
            if times.deferred is not None:
                self.model.add_hint(times.deferred, False)
            now += option.kernel + length if option.is_separate else option.total
        self.model.add_hint(self.period, now)
