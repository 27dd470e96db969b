"""Time of a collective of a library like NCCL on one node behind a switch, in closed form, with its protocol.

For b bytes, as nccl-tests counts them, on n GPUs:

    st     = n - 1 (all_gather, reduce_scatter), 2 (n - 1) (all_reduce)      steps of the ring
    w      = st * b / n, times reduce_factor where parts are summed          bytes that pass a GPU's port
    own    = b / n / own_bandwidth                                           the own part, copied or summed locally
    LL     = start               + st * ll_step     + w / ll_bandwidth     + own
    LL128  = start + ll128_start + st * ll128_step  + w / ll128_bandwidth  + own
    SIMPLE = start + simple_start + st * simple_step + w / simple_bandwidth + own
    T      = SIMPLE if b >= simple_from * n, else the smaller of LL and LL128
    T      = nvls.start + b / nvls.bandwidth for all_reduce if n >= nvls.ranks and b >= nvls.from
    T      = start + log2(n) * step + experts / n * expert + rows * row + w / bandwidth for a framework's own dispatch
             or combine, of so many rows of a rank; w is what leaves the rank
    T      = start + (n - 1) * step + w / bandwidth for all_reduce by a framework's own kernel, see ``SumForm``

all_to_all has constants of its own, one start for all n - 1 messages of LL128, and ``own`` with SIMPLE alone. The
library switches at fixed sizes, not where two lines cross, and at times too early; hence the sizes, one of each build.

Form and constants: fitted to medians of nccl-tests (aiconfigurator: 2, 4 and 8 GPUs, 512 B to 512 MiB, half precision);
3 to 6 % mean error on A100, H100 and B200. Contention with other kernels and launches by the host are not in it.

``early_switch`` finds sizes at which a library takes SIMPLE too early: a choice of its build, not of the GPU.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from ...compiler.ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    Collectives,
    ExchangeKernel,
    ExchangeModel,
    Gpu,
    NvlsModel,
    ProtocolModel,
    SumForm,
    SumKernel,
)
from ...compiler.text.units import round_half_up


class NcclCollective(Enum):
    """A collective; the value is its name.

    Its bytes, as nccl-tests counts them: all_gather everything gathered, reduce_scatter the input of a rank, all_reduce
    and all_to_all the buffer of a rank.
    """

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"


class NcclProtocol(Enum):
    """Protocol of the library: flags beside every 4 or 120 bytes, plain blocks, or sums in the switch.

    FRAMEWORK is a kernel of a framework in its place.
    """

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "SIMPLE"
    NVLS = "NVLS"
    FRAMEWORK = "a framework's kernel"


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Time of a collective alone, the sum of its terms, in ticks; ``moved`` is w of the formula."""

    protocol: NcclProtocol
    start_ticks: int
    step_ticks: int
    transfer_ticks: int
    own_ticks: int
    moved_bytes: int
    own_bytes: int

    @property
    def ticks(self) -> int:
        """The whole time."""
        return self.start_ticks + self.step_ticks + self.transfer_ticks + self.own_ticks

    @property
    def us(self) -> float:
        """The whole time in us."""
        return self.ticks / TICKS_PER_US


def collective_time(gpu: Gpu, operation: NcclCollective, num_bytes: int, ranks: int) -> CollectiveTime:
    """Time of a collective by the profile of ``gpu``, and the protocol that the library picks.

    Parameters
    ----------
    num_bytes
        As nccl-tests counts them, see ``NcclCollective``.

    Raises
    ------
    ValueError
        If ``num_bytes`` is below 1, ``ranks`` below 2, or the profile has no constants for the operation.
    """
    if num_bytes < 1 or ranks < 2:
        raise ValueError(f"a collective needs at least 1 B and 2 ranks, got {num_bytes} B on {ranks}")
    model = gpu.collectives
    if model is None:
        raise ValueError(f"the profile of {gpu.name} has no collectives")
    if operation is NcclCollective.ALL_TO_ALL:
        if model.all_to_all is None:
            raise ValueError(f"the profile of {gpu.name} has no {operation.value}")
        return _exchange(model.all_to_all, num_bytes, ranks)
    if operation is NcclCollective.ALL_REDUCE:
        kernel = next((each for each in model.kernels if num_bytes < each.below_bytes(ranks)), None)
        if kernel is not None:
            return _by_kernel(kernel, num_bytes, ranks)
        if model.nvls is not None and ranks >= model.nvls.ranks and num_bytes >= model.nvls.from_bytes:
            return _in_switch(model.nvls, num_bytes)
    return _ring(model, operation, num_bytes, ranks)


def _ring(model: Collectives, operation: NcclCollective, num_bytes: int, ranks: int) -> CollectiveTime:
    steps = (ranks - 1) * (2 if operation is NcclCollective.ALL_REDUCE else 1)
    factor = Fraction(1) if operation is NcclCollective.ALL_GATHER else model.reduce_factor
    moved, own = Fraction(num_bytes * steps, ranks) * factor, Fraction(num_bytes, ranks)

    def with_protocol(protocol: NcclProtocol, constants: ProtocolModel) -> CollectiveTime:
        return _time(protocol, model, constants, steps, moved, own)

    if num_bytes >= model.simple_from_bytes * ranks:
        return with_protocol(NcclProtocol.SIMPLE, model.simple)
    small, large = with_protocol(NcclProtocol.LL, model.ll), with_protocol(NcclProtocol.LL128, model.ll128)
    return min(small, large, key=lambda each: each.ticks)


def _exchange(model: ExchangeModel, num_bytes: int, ranks: int) -> CollectiveTime:
    steps, moved = ranks - 1, Fraction(num_bytes * (ranks - 1), ranks)
    if num_bytes >= model.simple_from_bytes * ranks:
        return _time(NcclProtocol.SIMPLE, model, model.simple, steps, moved, Fraction(num_bytes, ranks))
    small = _time(NcclProtocol.LL, model, model.ll, steps, moved, Fraction(0))
    large = _time(NcclProtocol.LL128, model, model.ll128, steps, moved, Fraction(0))
    return min(small, large, key=lambda each: each.ticks)


def _in_switch(model: NvlsModel, num_bytes: int) -> CollectiveTime:
    transfer_ticks = _ticks(Fraction(num_bytes), model.bytes_per_s)
    return CollectiveTime(NcclProtocol.NVLS, model.start_ticks, 0, transfer_ticks, 0, num_bytes, 0)


def _by_kernel(kernel: SumKernel, num_bytes: int, ranks: int) -> CollectiveTime:
    peers = ranks - 1
    times = {SumForm.ONE_SHOT: Fraction(peers), SumForm.TWO_SHOT: Fraction(2 * peers, ranks)}
    moved = times.get(kernel.form, Fraction(1)) * num_bytes
    return CollectiveTime(
        NcclProtocol.FRAMEWORK,
        kernel.start_ticks,
        peers * kernel.step_ticks,
        _ticks(moved, kernel.bytes_per_s),
        0,
        math.ceil(moved),
        0,
    )


def routed_time(
    kernel: ExchangeKernel, ranks: int, num_bytes: int, sent_rows: int, rows: int, copies: int, experts: int
) -> CollectiveTime:
    """Time of a dispatch or a combine by a framework's own kernel; numbers as in ``ExchangeKernel.split``."""
    fixed, moved = kernel.split(ranks, num_bytes, sent_rows, rows, copies, experts)
    return CollectiveTime(
        NcclProtocol.FRAMEWORK,
        kernel.start_ticks,
        fixed,
        _ticks(moved, kernel.bytes_per_s),
        0,
        math.ceil(moved),
        0,
    )


def _time(
    protocol: NcclProtocol,
    model: Collectives | ExchangeModel,
    constants: ProtocolModel,
    steps: int,
    moved: Fraction,
    own: Fraction,
) -> CollectiveTime:
    return CollectiveTime(
        protocol=protocol,
        start_ticks=model.start_ticks + constants.start_ticks,
        step_ticks=steps * constants.step_ticks,
        transfer_ticks=_ticks(moved, constants.bytes_per_s),
        own_ticks=_ticks(own, model.own_bytes_per_s),
        moved_bytes=math.ceil(moved),
        own_bytes=math.ceil(own),
    )


def _ticks(num_bytes: Fraction, bytes_per_s: int) -> int:
    """Time of a number of bytes, which need not be whole, at a rate; rounded half up."""
    return round_half_up(num_bytes * TICKS_PER_SECOND / bytes_per_s)


MIN_REPORTED_LOSS = 1.05
"""Losses below this are within the error of the fitted forms."""

NEVER_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class EarlySwitch:
    """At ``from_bytes`` (as nccl-tests counts them) SIMPLE is ``taken`` and ``better`` would have taken less time.

    SIMPLE pays from ``pays_from_bytes`` on, the first doubling of ``from_bytes`` where it is no slower.
    """

    from_bytes: int
    taken: CollectiveTime
    better: CollectiveTime
    pays_from_bytes: int


def early_switch(gpu: Gpu, operation: NcclCollective, ranks: int) -> EarlySwitch | None:
    """The switch of the library on ``ranks`` GPUs, if it comes too early by more than ``MIN_REPORTED_LOSS``.

    NVIDIA NCCL on B200 is an example: all_gather on 8 GPUs goes from 45 us at 8 MiB to 102 us at 16 MiB.

    Raises
    ------
    ValueError
        As ``collective_time``.
    """
    model = gpu.collectives
    if model is None:
        raise ValueError(f"the profile of {gpu.name} has no collectives")
    exchange = model.all_to_all
    by_exchange = operation is NcclCollective.ALL_TO_ALL
    at = ranks * (exchange.simple_from_bytes if exchange is not None and by_exchange else model.simple_from_bytes)
    # A library that never takes SIMPLE.
    never = replace(model, simple_from_bytes=NEVER_BYTES)
    if exchange is not None:
        never = replace(never, all_to_all=replace(exchange, simple_from_bytes=NEVER_BYTES))
    without = replace(gpu, collectives=never)
    taken, better = collective_time(gpu, operation, at, ranks), collective_time(without, operation, at, ranks)
    if taken.protocol is not NcclProtocol.SIMPLE or taken.ticks <= MIN_REPORTED_LOSS * better.ticks:
        return None

    def is_slower(num_bytes: int) -> bool:
        simple, other = (collective_time(each, operation, num_bytes, ranks).ticks for each in (gpu, without))
        return simple > other

    pays = at
    while pays < NEVER_BYTES and is_slower(pays):
        pays *= 2
    return EarlySwitch(at, taken, better, pays)
