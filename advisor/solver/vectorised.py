"""The space written down directly, as sums of arrays of codes, for spaces of any size.

Knob by knob the codes so far are joined with its values, and every rule whose knobs are all there by then masks them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from ...compiler.ir import Cancelled, Scenario, ShouldStop
from ...compiler.ir.stopping import never
from ...compiler.planning.knobs import Knob
from ...compiler.planning.knobs.structure import TEMPLATE
from ...compiler.templates import BY_NAME
from .domains import Domains
from .knobs import Codes, Knobs
from .tables import RuleTables, Table

# As many fit into memory with what is done to them; a file that asks for more gets a part.
MOST_CODES = 10_000_000
# Codes that are joined with the values of the next knob at a time.
_BLOCK = 1 << 16


def generate(scenario: Scenario, domains: Domains, is_over: ShouldStop = never) -> Codes:
    """Codes of every feasible choice, in ascending order; no more than some ``MOST_CODES``.

    ``is_over`` is asked now and then; what was found until it says so is returned.
    """
    blocks, total = list[Codes](), 0
    with suppress(Cancelled):
        for block in _blocks(RuleTables(scenario, domains, is_over=is_over), is_over):
            blocks.append(block)
            total += len(block)
            if total > MOST_CODES:
                break
    return np.concatenate(blocks) if blocks else np.empty(0, np.int64)


def _blocks(tables: RuleTables, is_over: ShouldStop) -> Iterator[Codes]:
    for digit, name in enumerate(tables.axes.values[TEMPLATE]):
        start = np.array([digit * tables.axes.weights[TEMPLATE]])
        yield from _Join(tables.axes, tables.of(BY_NAME[name]), is_over).blocks(start, 1)


class _Join:
    """The codes of one template."""

    def __init__(self, axes: Knobs, tables: Sequence[Table], is_over: ShouldStop) -> None:
        self._axes, self._order, self._is_over = axes, tuple(axes.values), is_over
        self._masks: Mapping[Knob, list[tuple[Table, npt.NDArray[np.bool_]]]] = {knob: [] for knob in self._order}
        for table in tables:
            last = max(table.knobs, key=self._order.index, default=TEMPLATE)
            self._masks[last].append((table, table.mask(axes)))

    def blocks(self, codes: Codes, position: int) -> Iterator[Codes]:
        """Extend ``codes``, which hold the first ``position`` knobs, by all allowed values of the others."""
        if self._masks[TEMPLATE] or self._is_over():
            return
        if position == len(self._order):
            yield codes
            return
        knob = self._order[position]
        values = np.arange(len(self._axes.values[knob])) * self._axes.weights[knob]
        for first in range(0, len(codes), _BLOCK):
            joined = np.add.outer(codes[first : first + _BLOCK], values).ravel()
            for table, mask in self._masks[knob]:
                joined = joined[mask[tuple(self._axes.digits(joined, each) for each in table.knobs)]]
            if len(joined):
                yield from self.blocks(joined, position + 1)
