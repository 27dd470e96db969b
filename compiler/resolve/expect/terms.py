"""Terms of an expectation: ``(serial.makespan - mine.makespan) / max(serial.compute_time, serial.comm_time)``."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import reduce

from ...codes import Code
from ...ir import (
    OF_STEPS_ALONE,
    OP_METRICS,
    STEP_METRICS,
    TICKS_PER_SECOND,
    Chain,
    End,
    Extreme,
    FigureKind,
    Metric,
    MetricOf,
    Negation,
    Operator,
    OverSeeds,
    Speedup,
    Term,
    Value,
    in_batch,
)
from ...text import syntax as ast
from ...text.diagnostics import Span, did_you_mean, listing
from ...text.units import BYTES, NUMBER, RATE, TIME, Quantity
from ...text.units import Dimension as Units
from ...text.vocabulary import ALWAYS_THERE, MAX_GROUPS, STEP_ALWAYS_THERE
from ..values.evaluate import Reading
from ..values.words import one_of, single

UNITS: Mapping[FigureKind, Units] = {
    FigureKind.TIME: TIME,
    FigureKind.BYTES: BYTES,
    FigureKind.RATIO: NUMBER,
    FigureKind.RATE: RATE,
}
DIMENSIONS = {units: dimension for dimension, units in UNITS.items()}


def dimension_of(term: Term) -> FigureKind:
    """Return the kind of a term."""
    match term:
        case MetricOf(metric=metric):
            return metric.kind
        case Speedup():
            return FigureKind.RATIO
        case Value(dimension=dimension) | Chain(dimension=dimension):
            return dimension
        case Negation(operand=inner) | OverSeeds(term=inner):
            return dimension_of(inner)
        case Extreme(terms=terms):
            return dimension_of(terms[0])


def figures_of(term: Term) -> Iterator[MetricOf | Speedup]:
    """Return every figure of a schedule in a term."""
    match term:
        case MetricOf() | Speedup():
            yield term
        case Value():
            return
        case Negation(operand=inner) | OverSeeds(term=inner):
            yield from figures_of(inner)
        case Chain(first=first, rest=rest):
            for each in (first, *(operand for _, operand in rest)):
                yield from figures_of(each)
        case Extreme(terms=terms):
            for each in terms:
                yield from figures_of(each)


def metric_or_none(word: str) -> Metric | None:
    """Return the metric of that name, if there is one."""
    return next((metric for metric in Metric if metric.value == word), None)


def joined_units(operator: Operator, left: Units, right: Units) -> Units | None:
    """Return the units of ``left operator right``, or None where it has none that a figure can have."""
    match operator:
        case Operator.ADD | Operator.SUBTRACT:
            return left if left == right else None
        case Operator.MULTIPLY:
            joined = left + right
        case Operator.DIVIDE:
            joined = left - right
    return joined if joined in DIMENSIONS else None


# By nearest rank, percentile 0 is the smallest of the sorted values and 100 the largest.
REDUCTIONS: Mapping[str, Fraction | None] = {
    "p5": Fraction(5),
    "p50": Fraction(50),
    "p95": Fraction(95),
    "p99": Fraction(99),
    "mean": None,
    "smallest": Fraction(0),
    "largest": Fraction(100),
}
PERCENTILE = "percentile"
OF_SWEEPS = {
    "crossover": "crossover(a.makespan, b.makespan) in 4096..16384",
    "winner": "winner(a, b, c) changes",
}
ABOUT_SCHEDULES = ("speedup", PERCENTILE, *REDUCTIONS)
_BEST, _BOUND = "best", "bound"
_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


class TermReader:
    """Reads terms about the declared ``schedules``; ``seeds`` tells whether they are simulated under seeds.

    ``ops`` are those of a graph. With ``of_step`` the schedules are those of a training step.
    """

    def __init__(
        self,
        schedules: tuple[str, ...],
        reading: Reading,
        seeds: int = 0,
        ops: tuple[str, ...] = (),
        *,
        of_step: bool = False,
    ) -> None:
        self._ops, self._declared = ops, schedules
        self._schedules = (*schedules, *(STEP_ALWAYS_THERE if of_step else ALWAYS_THERE))
        self._metrics = STEP_METRICS if of_step else tuple(each for each in Metric if each not in OF_STEPS_ALONE)
        self._reading, self._report = reading, reading.report
        self._seeds, self._reducing = seeds, False

    @property
    def under_seeds(self) -> bool:
        """Whether schedules are simulated under seeds."""
        return self._seeds > 0

    def read(self, expression: ast.Expression) -> Term:
        """Return a term; an error is reported and leaves the attempt."""
        if not _is_about_schedules(expression):
            return self.value(expression)
        match expression:
            case ast.Parens(items=(item,)):
                return self.read(item)
            case ast.Negate(operand=operand):
                return Negation(self.read(operand))
            case ast.ChainNode():
                return self._chain(expression)
            case ast.Member(base=ast.Name() as schedule, name=word):
                metric = self._metric(word, expression)
                if schedule.text == _BOUND and metric is not Metric.MAKESPAN:
                    message = "the lower bound has a makespan and nothing else"
                    raise self._report.fail(Code.MGS201, message, expression.span, "bound.makespan")
                return MetricOf(self._simulated(schedule, expression), metric)
            case ast.Member(base=ast.Member(base=ast.Name() as schedule, name=op), name=word):
                return self._of_op(schedule, op, word, expression)
            case ast.Member(base=ast.Index(base=ast.Member(base=ast.Name() as schedule, name=op)) as index, name=word):
                return self._of_op(schedule, op, word, expression, self._numbers(index))
            case ast.Call(function=ast.Name(text=word)):
                return self._call(word, expression)
            case ast.Name(text=word):
                hint = f"for instance best.{word}; schedules are {listing(self._schedules)}"
                raise self._report.fail(Code.MGS203, f"{word} needs the name of a schedule", expression.span, hint)
            case ast.Range() | ast.Spread():
                raise self._report.fail(Code.MGS116, "a range follows 'in', a tolerance '=='", expression.span)
            case _:
                raise self._report.fail(Code.MGS116, "a figure of a schedule is expected here", expression.span)

    def about_schedule(self, expression: ast.Expression, example: str) -> Term:
        """Return a term that must say something about a schedule."""
        term = self.read(expression)
        if not any(True for _ in figures_of(term)):
            message = "this says nothing about a schedule"
            raise self._report.fail(Code.MGS324, message, expression.span, f"for instance {example}")
        return term

    def value(self, expression: ast.Expression) -> Value:
        """Return a value without schedules in it."""
        if isinstance(expression, ast.Range | ast.Spread):
            raise self._report.fail(Code.MGS116, "a range follows 'in', a tolerance '=='", expression.span)
        if isinstance(expression, ast.Name) and expression.text == "verdict":
            hint = "it stands alone: verdict == serial"
            raise self._report.fail(Code.MGS116, "the verdict is no figure", expression.span, hint)
        if isinstance(expression, ast.Name) and expression.text in self._declared:
            hint = f"for instance {expression.text}.makespan"
            raise self._report.fail(Code.MGS116, f"which figure of {expression.text}?", expression.span, hint)
        return self.amount(self._reading.value(expression), expression)

    def amount(self, value: Quantity, expression: ast.Expression) -> Value:
        """Return a quantity as a value: a time in ticks, a rate in bytes per tick."""
        if value.dimension not in DIMENSIONS:
            message = f"a time, a size, a rate or a plain number is expected here, got {value.dimension}"
            raise self._report.fail(Code.MGS303, message, expression.span)
        ticks = Fraction(TICKS_PER_SECOND) ** value.dimension.seconds
        return Value(value.amount * ticks, DIMENSIONS[value.dimension])

    def schedule(self, name: ast.Name) -> str:
        """Return the name of a schedule, which must exist."""
        hint = f"schedules are {listing(self._schedules)}"
        return one_of(self._schedules, name, "schedule", self._report, hint, Code.MGS203)

    def _simulated(self, name: ast.Name, whole: ast.Expression) -> str:
        """Return a schedule whose figure can stand here: under seeds only inside a reduction."""
        schedule = self.schedule(name)
        if not self._seeds or schedule == _BOUND:
            return schedule
        if schedule == _BEST:
            hint = "declare the schedule that you mean, for instance: schedule mine for ... = shard_p2p()"
            raise self._report.fail(Code.MGS331, "best is not simulated under seeds", name.span, hint)
        if not self._reducing:
            text = whole.span.text
            message = f"{text[:64]} has a value for each seed"
            raise self._report.fail(Code.MGS328, message, whole.span, f"for instance p95({text}) or mean({text})")
        return schedule

    def _chain(self, chain: ast.ChainNode) -> Chain:
        first = self.read(chain.first)
        units, so_far = UNITS[dimension_of(first)], chain.first.span
        rest: list[tuple[Operator, Term]] = []
        for sign, operand in chain.rest:
            so_far = so_far.to(operand.span)
            term, operator = self.read(operand), Operator(sign)
            right = UNITS[dimension_of(term)]
            if operator is Operator.DIVIDE and isinstance(term, Value) and not term.amount:
                raise self._report.fail(Code.MGS312, "division by zero", so_far)
            joined = joined_units(operator, units, right)
            if joined is None:
                message = f"cannot {_VERBS[sign]} {units} {'by' if sign == '/' else 'and'} {right}"
                hint = "figures are times, bytes, bytes per time and plain numbers"
                raise self._report.fail(Code.MGS303, message, so_far, hint)
            units = joined
            rest.append((operator, term))
        return Chain(first, tuple(rest), DIMENSIONS[units])

    def _call(self, word: str, call: ast.Call) -> Term:
        values = tuple(single(argument.values, self._report, in_call=True) for argument in call.arguments)
        named = any(argument.name for argument in call.arguments)
        match word, values:
            case "speedup", (ast.Name() as fast, ast.Name() as slow) if not named:
                return Speedup(self._simulated(fast, call), self._simulated(slow, call))
            case "speedup", _:
                raise self._report.fail(Code.MGS116, "speedup takes two schedules", call.span, "speedup(best, serial)")
            case (("min" | "max"), (_, _, *_)) if not named:
                return self._extreme(End(word), values, call)
            case "percentile", (term, percent) if not named:
                return self._over_seeds(term, self._percent(percent), call)
            case _, (term,) if word in REDUCTIONS and not named:
                return self._over_seeds(term, REDUCTIONS[word], call)
            case _:
                raise self._report.fail(Code.MGS116, *_wrong_call(word, call))

    def _extreme(self, end: End, values: tuple[ast.Expression, ...], call: ast.Call) -> Extreme:
        terms = tuple(self.read(value) for value in values)
        kinds = sorted({str(UNITS[dimension_of(term)]) for term in terms})
        if len(kinds) > 1:
            raise self._report.fail(Code.MGS303, f"{end.value} cannot compare {' and '.join(kinds)}", call.span)
        return Extreme(end, terms)

    def _over_seeds(self, expression: ast.Expression, percent: Fraction | None, call: ast.Call) -> OverSeeds:
        if not self._seeds:
            hint = "say in this block under how many seeds schedules are simulated: seeds 64"
            raise self._report.fail(Code.MGS329, f"{call.span.text[:64]} over which seeds?", call.span, hint)
        if self._reducing:
            raise self._report.fail(Code.MGS116, "this is reduced over the seeds already", call.span)
        self._reducing = True
        try:
            return OverSeeds(self.about_schedule(expression, "p95(mine.makespan)"), percent)
        finally:
            self._reducing = False

    def _percent(self, expression: ast.Expression) -> Fraction:
        value = self._reading.value(expression)
        if isinstance(expression, ast.Measure) or value.dimension != NUMBER or not 0 <= value.amount <= 100:
            hint = "the 90th percentile is percentile(mine.makespan, 90)"
            raise self._report.fail(Code.MGS307, "a percentile is a number from 0 to 100", expression.span, hint)
        return value.amount

    def _numbers(self, index: ast.Index) -> tuple[int, ...]:
        """Read the numbers in ``domino.qkv[1].makespan``, or of a batch and a group in ``grouped.h[1, 3].makespan``."""
        found = [each.text for each in index.subscripts if isinstance(each, ast.NumberNode) and each.text.isdecimal()]
        if len(found) != len(index.subscripts) or len(found) > 2 or any(int(each) >= MAX_GROUPS for each in found):
            hint = "for instance domino.qkv[0].makespan"
            raise self._report.fail(Code.MGS116, "the number of a batch or group is expected here", index.span, hint)
        return tuple(map(int, found))

    def _of_op(
        self, schedule: ast.Name, op: str, word: str, expression: ast.Expression, numbers: tuple[int, ...] = ()
    ) -> MetricOf:
        """Read ``late.dh.makespan``, or ``late.dh[0].makespan``."""
        if op not in self._ops:
            hint = did_you_mean(op, self._ops) or (f"ops are {listing(self._ops)}" if self._ops else "mine.makespan")
            what = (
                f"unknown op '{op[:64]}'" if self._ops else "only a workload of several ops has figures of single ops"
            )
            raise self._report.fail(Code.MGS203, what, expression.span, hint)
        metric = self._metric(word, expression)
        if metric not in OP_METRICS:
            hint = f"an op has {listing(each.value for each in OP_METRICS)}"
            raise self._report.fail(Code.MGS201, f"an op has no metric '{word}'", expression.span, hint)
        return MetricOf(self._simulated(schedule, expression), metric, reduce(in_batch, numbers, op))

    def _metric(self, word: str, expression: ast.Expression) -> Metric:
        metric = metric_or_none(word)
        if metric is None or metric not in self._metrics:
            known = [each.value for each in self._metrics]
            guess = did_you_mean(word, known)
            hint = f"{guess}; metrics are {listing(known)}" if guess else f"metrics are {listing(known)}"
            what = "the schedule of a step" if self._metrics is STEP_METRICS else "a schedule"
            raise self._report.fail(Code.MGS201, f"{what} has no metric '{word[:64]}'", expression.span, hint)
        return metric


def _is_about_schedules(expression: ast.Expression) -> bool:
    """Whether an expression refers to results of a simulation."""
    match expression:
        case ast.Name(text=word):
            return metric_or_none(word) is not None
        case ast.Member():
            return True
        case ast.Negate(operand=inner):
            return _is_about_schedules(inner)
        case ast.Parens(items=items):
            return any(map(_is_about_schedules, items))
        case ast.ChainNode(first=first, rest=rest):
            return _is_about_schedules(first) or any(_is_about_schedules(operand) for _, operand in rest)
        case ast.Call(function=ast.Name(text=word), arguments=arguments):
            values = [value for argument in arguments for value in argument.values]
            return word in (*ABOUT_SCHEDULES, *OF_SWEEPS) or any(map(_is_about_schedules, values))
        case _:
            return False


def _wrong_call(word: str, call: ast.Call) -> tuple[str, Span, str]:
    """Return message, span and hint for a function that is unknown in a term or has wrong arguments."""
    if word == PERCENTILE:
        return "percentile takes a figure and a number", call.span, "percentile(mine.makespan, 90)"
    if word in REDUCTIONS:
        return f"{word} takes one figure", call.span, f"{word}(mine.makespan)"
    if word in ("min", "max"):
        return f"{word} takes two or more values", call.span, f"{word}(serial.compute_time, serial.comm_time)"
    if word in OF_SWEEPS:
        return f"{word} stands alone, in a sweep", call.span, OF_SWEEPS[word]
    known = ("min", "max", *ABOUT_SCHEDULES)
    hint = did_you_mean(word, known) or f"functions of figures are {listing(known)}"
    return f"{word[:64]} does not take figures of schedules", call.span, hint
