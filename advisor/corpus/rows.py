"""Rows of a store from records and back; values are checked both ways, for the file may come from anywhere."""

import math
from collections.abc import Sequence

from ..bespoke import Proposer
from .families import ScenarioFamily
from .record import Record, Tried

Row = Sequence[object]

MAX_INT = (1 << 63) - 1
MAX_CHARS = 1 << 16
"""Characters of an expression; the longest are of plans with many parts."""
MAX_PLANS = 1 << 14
"""Plans of one record; a full search simulates some hundreds."""
PROPOSERS = frozenset(proposer.value for proposer in Proposer)


class UnsoundError(ValueError):
    """A value that no search finds; the message names it."""


def scenario_row(record: Record) -> tuple[object, ...]:
    """Return seed, index, the fields of the family, bound and baseline.

    Raises
    ------
    UnsoundError
        If a value is out of its range.
    """
    of = record.family
    family = (of.gpu, of.topology, of.ranks, of.pattern, of.model, of.size, int(of.moved))
    row = (record.seed, record.idx, *family, record.bound_ticks, record.baseline)
    record_of_rows(row, plan_rows(record))
    return row


def plan_rows(record: Record) -> list[tuple[object, ...]]:
    """Return a row for each plan."""
    return [(plan.expression, plan.proposer, plan.ticks, plan.unit_bytes, plan.estimate_ticks) for plan in record.plans]


def record_of_rows(row: Row, plans: Sequence[Row]) -> Record:
    """Return the record of a ``scenario_row`` and its ``plan_rows``.

    Raises
    ------
    UnsoundError
        If a value is out of its range, or of another type.
    """
    seed, idx, gpu, topology, ranks, pattern, model, size, moved, bound, baseline = row
    family = ScenarioFamily(
        _text("gpu", gpu),
        _text("topology", topology),
        _whole("ranks", ranks),
        _text("pattern", pattern),
        _text("model", model),
        _text("size", size),
        bool(_whole("moved", moved, 0, 1)),
    )
    if not 0 < len(plans) <= MAX_PLANS:
        raise UnsoundError(f"it has {'too many' if plans else 'no'} plans")
    record = Record(
        _whole("seed", seed, 0),
        _whole("idx", idx, 0),
        family,
        _whole("bound_ticks", bound),
        _text("baseline", baseline),
        tuple(map(_tried, plans)),
    )
    if record.baseline not in {plan.expression for plan in record.plans}:
        raise UnsoundError("its baseline is none of its plans")
    return record


def _tried(row: Row) -> Tried:
    expression, proposer, ticks, unit_bytes, estimate = row
    if proposer not in PROPOSERS:
        raise UnsoundError(f"proposer is {_shown(proposer)}")
    return Tried(
        _text("expression", expression),
        _text("proposer", proposer),
        _whole("ticks", ticks),
        _whole("unit_bytes", unit_bytes),
        _time("estimate_ticks", estimate),
    )


def _text(name: str, value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= MAX_CHARS:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _whole(name: str, value: object, least: int = 1, most: int = MAX_INT) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _time(name: str, value: object) -> float:
    if type(value) is not float or not 0 < value < math.inf:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"
