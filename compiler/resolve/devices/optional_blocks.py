"""Optional parts of the profile of a GPU: check that each is complete and consistent, and build its dataclass."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from ...codes import Code
from ...ir import (
    TYPES_WITH_CONSTANTS,
    AttentionModel,
    Beside,
    Cache,
    Collectives,
    Dma,
    DmaPhases,
    ExchangeModel,
    GroupedModel,
    Hbm,
    Noc,
    NvlsModel,
    Origin,
    ProtocolModel,
    Saturation,
    SmCopy,
    Sustained,
    Sync,
)
from ...text.diagnostics import Report, Source
from ...text.vocabulary import CACHE_NUMBERS, COLLECTIVES, GPU_BLOCKS, TYPE_BLOCKS
from ..values.device_numbers import DeviceNumbers, NumberWithOrigin

# Protocols with more flags are slower: LL sends a flag with every 4 bytes, LL128 with every 120.
_PROTOCOLS = (("ll", "ll128"), ("ll", "simple"), ("ll128", "simple"))
_SLOWER = (
    ("sm_copy.bandwidth", "sm_copy.limit"),
    *(
        (f"{prefix}{slower}_bandwidth", f"{prefix}{faster}_bandwidth")
        for prefix in ("collectives.", "collectives.all_to_all.")
        for slower, faster in _PROTOCOLS
    ),
)


def missing_of(figures: Mapping[str, NumberWithOrigin]) -> Iterator[str]:
    """Return the paths of numbers that are missing from parts that are given incompletely."""
    for paths, opens in _groups():
        if any(path.startswith(opens) for path in figures):
            yield from (path for path in paths if path not in figures)


def check_parts(figures: Mapping[str, NumberWithOrigin], source: Source, report: Report) -> None:
    """Report constants that contradict each other, at the one in ``source``, the device's own file."""
    for slower, faster in _SLOWER:
        pair = [figures[path] for path in (slower, faster) if path in figures]
        if len(pair) == 2 and pair[0].value.amount > pair[1].value.amount:
            at = next((each.span for each in pair if each.span.source == source), pair[0].span)
            message = f"{slower.rpartition('.')[2]} is more than {faster.rpartition('.')[2]}"
            raise report.fail(Code.MGS314, message, at, f"{slower} is at most {faster}")


def collectives_of(figures: DeviceNumbers) -> Collectives | None:
    """Return the collective library, None if the profile describes none."""
    exact, prefix = figures.by_path, "collectives."
    if f"{prefix}start" not in exact:
        return None
    return Collectives(
        start_ticks=figures.ticks(f"{prefix}start"),
        ll=_protocol(figures, f"{prefix}ll"),
        ll128=_protocol(figures, f"{prefix}ll128"),
        simple=_protocol(figures, f"{prefix}simple"),
        own_bytes_per_s=figures.whole(f"{prefix}own_bandwidth"),
        reduce_factor=exact[f"{prefix}reduce_factor"].value.amount,
        simple_from_bytes=figures.whole(f"{prefix}simple_from"),
        error=exact[f"{prefix}error"].value.amount,
        validated=exact[f"{prefix}error"].origin in (Origin.MEASURED, Origin.FITTED),
        nvls=_nvls(figures, f"{prefix}nvls."),
        all_to_all=_exchange(figures, f"{prefix}all_to_all."),
        link_bytes_per_s=figures.whole_if(f"{prefix}link_bandwidth"),
        link_latency_ticks=figures.ticks_if(f"{prefix}link_latency"),
        links=figures.whole_if(f"{prefix}links"),
    )


def dma_of(figures: DeviceNumbers) -> Dma:
    """Return the copy engines, with the constants of their commands that the profile has."""
    return Dma(
        engines=figures.whole("dma.engines"),
        setup_ticks=figures.ticks("dma.setup"),
        bytes_per_s=figures.whole("dma.bandwidth"),
        phases=_phases(figures),
        outstanding_bytes=figures.whole_if("dma.outstanding"),
        issue_interval_ticks=figures.ticks_if("dma.issue_interval") or 0,
        packet_bytes=figures.whole_if("dma.packet"),
        packet_ticks=figures.ticks_if("dma.packet_cost") or 0,
        prelaunch_ticks=figures.ticks_if("dma.prelaunch") or 0,
    )


def sm_copy_of(figures: DeviceNumbers) -> SmCopy:
    """Return copies by SMs, with their saturation of a link if the profile has it."""
    outstanding = figures.whole_if("sm_copy.outstanding")
    rate, setup = figures.whole("sm_copy.bandwidth"), figures.ticks("sm_copy.setup")
    return SmCopy(rate, setup, _saturation(figures), outstanding)


def hbm_of(figures: DeviceNumbers) -> Hbm:
    """Return device memory, with its channels and look-ahead if the profile has them."""
    rates = figures.whole("hbm.bandwidth"), figures.whole("hbm.achieved")
    channels = figures.whole_if("hbm.channels") or 1
    look_ahead = figures.whole_if("hbm.look_ahead")
    return Hbm(figures.whole("hbm.capacity"), *rates, figures.ticks("hbm.latency"), channels, look_ahead)


def mall_of(figures: DeviceNumbers) -> Cache | None:
    """Return the cache in front of memory, None if the profile describes none."""
    if "mall.size" not in figures.by_path:
        return None
    return Cache(figures.whole("mall.size"), 1, figures.whole("mall.bandwidth"), figures.ticks("mall.latency"))


def noc_of(figures: DeviceNumbers) -> Noc | None:
    """Return the network on chip, None if the profile describes none."""
    if "noc.gemm_share" not in figures.by_path:
        return None
    return Noc(figures.by_path["noc.gemm_share"].value.amount, figures.whole("noc.copy_bandwidth"))


def beside_of(figures: DeviceNumbers) -> Beside | None:
    """Return how much longer a GEMM beside copies may take, None if the profile does not say it."""
    if "beside.dma" not in figures.by_path:
        return None
    return Beside(*(figures.by_path[f"beside.{name}"].value.amount for name in ("dma", "sm")))


def sustained_of(figures: DeviceNumbers, prefix: str = "sustained.") -> Sustained | None:
    """Return the clock under load, of all GEMMs or of one type, None if the profile does not say it."""
    if f"{prefix}after" not in figures.by_path:
        return None
    return Sustained(figures.ticks(f"{prefix}after"), figures.by_path[f"{prefix}clock"].value.amount)


def attention_of(figures: DeviceNumbers, block: str) -> AttentionModel | None:
    """Return the constants of attention in ``block``, None if the profile has none."""
    if f"{block}.start" not in figures.by_path:
        return None
    mma, softmax, hbm = (figures.by_path[f"{block}.{name}"].value.amount for name in ("mma", "softmax", "hbm"))
    decode_hbm, again, least = (figures.by_path.get(f"{block}.decode_{name}") for name in ("hbm", "again", "least"))
    return AttentionModel(
        start_ticks=figures.ticks(f"{block}.start"),
        mma_fraction=mma,
        softmax_fraction=softmax,
        hbm_fraction=hbm,
        unit_ticks=figures.ticks(f"{block}.unit"),
        queries=figures.whole(f"{block}.queries"),
        decode_start_ticks=figures.ticks(f"{block}.decode_start"),
        decode_unit_ticks=figures.ticks(f"{block}.decode_unit"),
        decode_block_ticks=figures.ticks(f"{block}.decode_block"),
        decode_hbm_fraction=None if decode_hbm is None else decode_hbm.value.amount,
        packed=figures.whole_if(f"{block}.packed") or 1,
        token_ticks=figures.ticks_if(f"{block}.token") or 0,
        decode_packed=figures.whole_if(f"{block}.decode_packed"),
        decode_head_ticks=figures.ticks_if(f"{block}.decode_head"),
        decode_again_fraction=Fraction(1) if again is None else again.value.amount,
        decode_least_fraction=Fraction(0) if least is None else least.value.amount,
    )


def grouped_of(figures: DeviceNumbers) -> GroupedModel | None:
    """Return the constants of grouped GEMMs, None if the profile has none."""
    model = _grouped(figures, "grouped")
    of_types = {name: _grouped(figures, f"grouped.{name}") for name in TYPES_WITH_CONSTANTS}
    return None if model is None else model.with_types(of_types)


def _grouped(figures: DeviceNumbers, block: str) -> GroupedModel | None:
    if f"{block}.start" not in figures.by_path:
        return None
    names = ("mma", "hbm", "exponent", "rows")
    mma, hbm, exponent, rows = (figures.by_path[f"{block}.{name}"].value.amount for name in names)
    start, tile = figures.ticks(f"{block}.start"), figures.ticks(f"{block}.tile")
    choice, epilogue = (figures.ticks_if(f"{block}.{name}") or 0 for name in ("choice", "epilogue"))
    return GroupedModel(start, mma, hbm, tile, exponent, rows, choice, epilogue)


def sync_of(figures: DeviceNumbers) -> Sync:
    """Return the costs of waits and of launches in graphs that the profile has."""
    return Sync(
        poll_interval_ticks=figures.ticks_if("sync.poll_interval"),
        monitor_arm_ticks=figures.ticks_if("sync.monitor_arm") or 0,
        monitor_wake_ticks=figures.ticks_if("sync.monitor_wake"),
        monitor_entries=figures.whole_if("sync.monitor_entries"),
        graph_launch_ticks=figures.ticks_if("sync.graph_launch"),
    )


def _phases(figures: DeviceNumbers) -> DmaPhases | None:
    """Return the fixed phases of a copy, None if the profile does not list them."""
    if "dma.control_phase" not in figures.by_path:
        return None
    return DmaPhases(*(figures.ticks(f"dma.{phase}_phase") for phase in ("control", "schedule", "copy", "sync")))


def _saturation(figures: DeviceNumbers) -> Saturation | None:
    """Return how copies by SMs saturate the link, None if the profile does not say."""
    if "sm_copy.limit" not in figures.by_path:
        return None
    return Saturation(figures.whole("sm_copy.limit"), figures.by_path["sm_copy.exponent"].value.amount)


def _groups() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the paths of each part, and the prefixes of paths that show that the part is given."""
    for block, numbers in GPU_BLOCKS.items():
        paths = tuple(f"{block}.{each.name}" for each in numbers if not each.required and not each.alone)
        yield paths, paths
    yield tuple(f"mall.{each.name}" for each in CACHE_NUMBERS), ("mall.",)
    for block, numbers in TYPE_BLOCKS.items():
        for name in TYPES_WITH_CONSTANTS:
            yield tuple(f"{block}.{name}.{each.name}" for each in numbers if not each.alone), (f"{block}.{name}.",)
    for name in TYPES_WITH_CONSTANTS:
        clock = f"gemm.{name}.sustained_after", f"gemm.{name}.sustained_clock"
        yield clock, clock
    for name, numbers in COLLECTIVES.items():
        prefix = f"collectives.{name}." if name else "collectives."
        yield tuple(f"{prefix}{each.name}" for each in numbers if not each.alone), (prefix,)


def _protocol(figures: DeviceNumbers, path: str) -> ProtocolModel:
    """Return a protocol; LL has only the common start, and LL128 of all_to_all has no steps."""
    start = figures.ticks(f"{path}_start") if f"{path}_start" in figures.by_path else 0
    step = figures.ticks(f"{path}_step") if f"{path}_step" in figures.by_path else 0
    return ProtocolModel(start, step, figures.whole(f"{path}_bandwidth"))


def _nvls(figures: DeviceNumbers, prefix: str) -> NvlsModel | None:
    if f"{prefix}start" not in figures.by_path:
        return None
    rate, smallest = figures.whole(f"{prefix}bandwidth"), figures.whole(f"{prefix}from")
    return NvlsModel(figures.ticks(f"{prefix}start"), rate, smallest, figures.whole(f"{prefix}ranks"))


def _exchange(figures: DeviceNumbers, prefix: str) -> ExchangeModel | None:
    if f"{prefix}start" not in figures.by_path:
        return None
    return ExchangeModel(
        start_ticks=figures.ticks(f"{prefix}start"),
        ll=_protocol(figures, f"{prefix}ll"),
        ll128=_protocol(figures, f"{prefix}ll128"),
        simple=_protocol(figures, f"{prefix}simple"),
        own_bytes_per_s=figures.whole(f"{prefix}own_bandwidth"),
        simple_from_bytes=figures.whole(f"{prefix}simple_from"),
    )
