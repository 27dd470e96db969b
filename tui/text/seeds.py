"""Results under many seeds as percentiles, by nearest rank: the least value that p percent do not exceed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...compiler.ir import TICKS_PER_US
from ...simcore import Result
from .wrap import columns, wrapped

PERCENTILES = (5, 50, 95, 99)
_FIGURES: Mapping[str, Callable[[Result], int]] = {
    "makespan": lambda result: result.makespan_ticks,
    "compute": lambda result: result.compute_ticks,
    "exposed": lambda result: result.exposed_ticks,
}
_WIDTH = 10


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the value at the nearest rank, ceil(percent / 100 * N), of N values.

    Raises
    ------
    ValueError
        If there is no value, or ``percent`` is not from 1 to 100.
    """
    if not values or not 1 <= percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(values)} values")
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def seeds_document(seeds: range, results: Sequence[Result], layers: int = 1) -> dict[str, Any]:
    """Return the part of ``magus simulate --json`` that ``--seeds`` adds, times in us; of so many ``layers``."""
    return {
        **({"layers": layers} if layers > 1 else {}),
        "first": seeds.start,
        "count": len(seeds),
        "unit_bytes": results[0].unit_bytes,
        **{f"{name}_us": spread for name, spread in _spreads(results).items()},
    }


def seeds_text(seeds: range, results: Sequence[Result], layers: int = 1) -> str:
    """Return the percentiles as a table; of several layers they are of so many ``layers`` in all."""
    spreads, of = _spreads(results), f", of {layers} layers" if layers > 1 else ""
    lines = ["", *wrapped(f"Seeds {seeds.start} to {seeds[-1]}, us{of} (simulated at {results[0].unit_bytes} B):")]
    if columns() < 11 + _WIDTH * len(next(iter(spreads.values()))):  # too wide: swap rows and columns
        spreads = {of: {name: each[of] for name, each in spreads.items()} for of in next(iter(spreads.values()))}
    name_width = max(map(len, spreads)) + 1
    lines.append(f"  {'':<{name_width}}" + "".join(f"{name:>{_WIDTH}}" for name in next(iter(spreads.values()))))
    for name, spread in spreads.items():
        lines.append(f"  {name:<{name_width}}" + "".join(f"{value:>{_WIDTH}.1f}" for value in spread.values()))
    return "\n".join(lines)


def _spreads(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return the least and largest value and the percentiles of each figure, in us."""
    found = {}
    for name, figure in _FIGURES.items():
        values = [figure(result) for result in results]
        row = {"min": min(values), **{f"p{p}": percentile(values, p) for p in PERCENTILES}, "max": max(values)}
        found[name] = {key: ticks / TICKS_PER_US for key, ticks in row.items()}
    return found
