"""Optional parts of the profile of a GPU: check that each is complete and consistent, and build its dataclass."""

from collections.abc import Iterator, Mapping

from ...codes import Code
from ...ir import (
    TYPES_WITH_CONSTANTS,
    Collectives,
    Dma,
    DmaPhases,
    ExchangeModel,
    GroupedModel,
    NvlsModel,
    Origin,
    ProtocolModel,
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
    prefix = "collectives."
    if f"{prefix}start" not in figures.by_path:
        return None
    validated = figures.by_path[f"{prefix}error"].origin in (Origin.MEASURED, Origin.FITTED)
    nvls = figures.filled_if(NvlsModel, f"{prefix}nvls.", "start")
    exchange = f"{prefix}all_to_all."
    all_to_all = figures.filled_if(ExchangeModel, exchange, "start", **_protocols(figures, exchange))
    parts = {"nvls": nvls, "all_to_all": all_to_all, "validated": validated, **_protocols(figures, prefix)}
    return figures.filled(Collectives, prefix, **parts)


def _protocols(figures: DeviceNumbers, prefix: str) -> dict[str, ProtocolModel]:
    """Return the protocols by name; LL has only the common start, and LL128 of all_to_all has no steps."""
    return {
        name: ProtocolModel(
            figures.ticks_if(f"{prefix}{name}_start") or 0,
            figures.ticks_if(f"{prefix}{name}_step") or 0,
            figures.whole(f"{prefix}{name}_bandwidth"),
        )
        for name in ("ll", "ll128", "simple")
        if f"{prefix}{name}_bandwidth" in figures.by_path
    }


def dma_of(figures: DeviceNumbers) -> Dma:
    """Return the copy engines, with the constants of their commands that the profile has."""
    phases = None
    if "dma.control_phase" in figures.by_path:
        phases = DmaPhases(*(figures.ticks(f"dma.{phase}_phase") for phase in ("control", "schedule", "copy", "sync")))
    return figures.filled(Dma, "dma.", phases=phases, packet_ticks=figures.ticks_if("dma.packet_cost") or 0)


def grouped_of(figures: DeviceNumbers) -> GroupedModel | None:
    """Return the constants of grouped GEMMs, None if the profile has none."""
    model = figures.filled_if(GroupedModel, "grouped.", "start")
    of_types = {name: figures.filled_if(GroupedModel, f"grouped.{name}.", "start") for name in TYPES_WITH_CONSTANTS}
    return None if model is None else model.with_types(of_types)


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
