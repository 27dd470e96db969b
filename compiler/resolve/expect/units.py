"""Dimensions of the terms of an expectation, and the figures in them."""

from collections.abc import Iterator, Mapping

from ...ir import Chain, Extreme, FigureKind, Metric, MetricOf, Negation, Operator, OverSeeds, Speedup, Term, Value
from ...text.units import BYTES, NUMBER, RATE, TIME
from ...text.units import Dimension as Units

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
