"""The constants of a collective library fitted to nccl-tests: rings, all_to_all, and sums in the switch.

The sizes at which a library switches protocols belong to its build and are kept, unless a fit of them is requested.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from ....compiler.ir import Gpu
from ....simcore.kernels.nccl import NcclCollective, NcclProtocol, collective_time
from ..tables.collectives import MeasuredPoint
from .constants import Constant, ConstantUnit
from .fitting import Fitted, Floats, put_all
from .parts import FittedRow, ProfilePart, fit_rows

PROTOCOL_RATES = ("ll_bandwidth", "ll128_bandwidth", "simple_bandwidth")
SWITCH_SIZES = tuple(1 << power for power in range(16, 25))  # for each rank


def _time(path: str, *attributes: str) -> Constant:
    return Constant(f"collectives.{path}", ("collectives", *attributes), ConstantUnit.TIME, 0.02, 500)


def _rate(path: str, *attributes: str) -> Constant:
    return Constant(f"collectives.{path}", ("collectives", *attributes), ConstantUnit.RATE, 0.5, 20_000)


RING = (
    _time("start", "start_ticks"),
    _time("ll_step", "ll", "step_ticks"),
    _rate("ll_bandwidth", "ll", "bytes_per_s"),
    _time("ll128_start", "ll128", "start_ticks"),
    _time("ll128_step", "ll128", "step_ticks"),
    _rate("ll128_bandwidth", "ll128", "bytes_per_s"),
    _time("simple_start", "simple", "start_ticks"),
    _time("simple_step", "simple", "step_ticks"),
    _rate("simple_bandwidth", "simple", "bytes_per_s"),
    _rate("own_bandwidth", "own_bytes_per_s"),
    Constant("collectives.reduce_factor", ("collectives", "reduce_factor"), ConstantUnit.SHARE, 0.3, 2),
)
EXCHANGE = (
    _time("all_to_all.start", "all_to_all", "start_ticks"),
    _time("all_to_all.ll_step", "all_to_all", "ll", "step_ticks"),
    _rate("all_to_all.ll_bandwidth", "all_to_all", "ll", "bytes_per_s"),
    _time("all_to_all.ll128_start", "all_to_all", "ll128", "start_ticks"),
    _rate("all_to_all.ll128_bandwidth", "all_to_all", "ll128", "bytes_per_s"),
    _time("all_to_all.simple_start", "all_to_all", "simple", "start_ticks"),
    _time("all_to_all.simple_step", "all_to_all", "simple", "step_ticks"),
    _rate("all_to_all.simple_bandwidth", "all_to_all", "simple", "bytes_per_s"),
    _rate("all_to_all.own_bandwidth", "all_to_all", "own_bytes_per_s"),
)
NVLS = (_time("nvls.start", "nvls", "start_ticks"), _rate("nvls.bandwidth", "nvls", "bytes_per_s"))
RING_SWITCH = Constant("collectives.simple_from", ("collectives", "simple_from_bytes"), ConstantUnit.SIZE, 1, 1 << 40)
EXCHANGE_SWITCH = Constant(
    "collectives.all_to_all.simple_from",
    ("collectives", "all_to_all", "simple_from_bytes"),
    ConstantUnit.SIZE,
    1,
    1 << 40,
)


def collective_parts(gpu: Gpu, points: Sequence[MeasuredPoint], fit_switch: bool) -> list[ProfilePart]:
    """Return the parts rings, all_to_all and NVLS that ``points`` has rows of.

    The sizes in the profile ``gpu`` decide which points are sums in the switch. With ``fit_switch`` the size from which
    SIMPLE is used is fitted too.
    """
    parts: list[ProfilePart] = []
    for name, constants, switch in (
        ("rings", RING, RING_SWITCH),
        ("all_to_all", EXCHANGE, EXCHANGE_SWITCH),
        ("NVLS", NVLS, None),
    ):
        rows = tuple(_row(point) for point in points if _part_of(gpu, point) == name)
        if rows:
            searched = switch if fit_switch else None
            fit = partial(_fit, constants, searched)
            parts.append(ProfilePart(name, rows, collective_times_us, fit, len(constants) + (searched is not None)))
    return parts


def collective_times_us(gpu: Gpu, rows: Sequence[FittedRow]) -> Floats:
    """Return the time of each row by the profile, in us."""
    return np.array(
        [collective_time(gpu, NcclCollective(row.key[0]), int(row.key[2]), int(row.key[1])).us for row in rows]
    )


def _row(point: MeasuredPoint) -> FittedRow:
    return FittedRow(
        point.operation.value, (point.operation.value, point.ranks, point.num_bytes), point.time_us, point.file
    )


def _part_of(gpu: Gpu, point: MeasuredPoint) -> str:
    if point.operation is NcclCollective.ALL_TO_ALL:
        return "all_to_all"
    in_switch = collective_time(gpu, point.operation, point.num_bytes, point.ranks).protocol is NcclProtocol.NVLS
    return "NVLS" if in_switch else "rings"


def _fit(
    constants: tuple[Constant, ...], switch: Constant | None, gpu: Gpu, start: Gpu, rows: Sequence[FittedRow]
) -> tuple[Fitted, ...]:
    if switch is None:
        return _fit_with_fixed_sizes(constants, gpu, start, rows)
    before = switch.of(gpu)
    # The size of the profile comes first, so that it is kept in a tie.
    sizes = sorted({int(before), *SWITCH_SIZES}, key=lambda size: (size != before, size))
    ends = []
    for size in sizes:
        at = Fitted(switch, before, switch.rounded(size), 0.0, at_bound=False)
        trial = switch.put(gpu, at.value)
        ends.append((*_fit_with_fixed_sizes(constants, trial, start, rows), at))
    return min(ends, key=lambda end: _mean_error(gpu, end, rows))


def _fit_with_fixed_sizes(
    constants: tuple[Constant, ...], gpu: Gpu, start: Gpu, rows: Sequence[FittedRow]
) -> tuple[Fitted, ...]:
    """Fit all but the switch sizes; a protocol with more flags is slower: LL than LL128, LL128 than SIMPLE."""
    rates = [index for index, constant in enumerate(constants) if constant.name in PROTOCOL_RATES]
    order = list(pairwise(rates))
    return fit_rows(constants, gpu, start, rows, collective_times_us, order)


def _mean_error(gpu: Gpu, fitted: Sequence[Fitted], rows: Sequence[FittedRow]) -> float:
    gpu = put_all(gpu, fitted)
    measured = np.array([row.measured for row in rows])
    return float(np.mean(np.abs(collective_times_us(gpu, rows) / measured - 1)))
