"""Resolve gpus, links and switches, with inheritance, defaults and the origin of every number."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...codes import Code
from ...ir import (
    TYPES_WITH_CONSTANTS,
    Cache,
    Collectives,
    CopyProtocol,
    Dma,
    DmaPhases,
    DType,
    GemmModel,
    Gpu,
    Link,
    Origin,
    Saturation,
    SmCopy,
    Switch,
)
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, Span
from ...text.names import Entry, Kind
from ...text.vocabulary import (
    CACHE_NUMBERS,
    COLLECTIVES,
    GPU_BLOCKS,
    GPU_NUMBERS,
    LINK_NUMBERS,
    SWITCH_CHOICES,
    SWITCH_NUMBERS,
    TYPE_BLOCKS,
)
from ..values.device_numbers import Default, DeviceNumbers, NumberWithOrigin, StatedNumber
from ..values.evaluate import Place, Reading, clock_of
from .device_blocks import INPUTS, BlockReader, FittedRegion, Tiles, calibrated_of

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


def dma_of(figures: DeviceNumbers) -> Dma:
    """Return the copy engines, with the constants of their commands that the profile has."""
    phases = None
    if "dma.control_phase" in figures.by_path:
        phases = DmaPhases(*(figures.ticks(f"dma.{phase}_phase") for phase in ("control", "schedule", "copy", "sync")))
    return figures.filled(Dma, "dma.", phases=phases, packet_ticks=figures.ticks_if("dma.packet_cost") or 0)


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


_SIMPLE = {Kind.LINK: LINK_NUMBERS, Kind.SWITCH: SWITCH_NUMBERS}
_GEMMS_OF_TYPES = tuple(f"gemm.{name}" for name in TYPES_WITH_CONSTANTS)
# Accuracy of fitted constants: an inherited number is derived if the child changes an input of its block.
_ACCURACY = (
    "collectives.error",
    *(f"{block}.{name}" for block in ("gemm", *_GEMMS_OF_TYPES) for name in ("error", "resolution")),
)
# A device with all of these numbers has a GEMM form of its own, fitted with its own L2.
_GEMM_FORM = frozenset(f"gemm.{each.name}" for each in GPU_BLOCKS["gemm"] if each.required)
_MAX_PARENTS = 16


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The content of the blocks of a device and of its parents."""

    figures: Mapping[str, NumberWithOrigin]
    tiles: Mapping[str, Tiles] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    regions: Mapping[str, FittedRegion] = field(default_factory=dict)
    derived: frozenset[str] = frozenset()
    fitted_l2: tuple[int, int] | None = None


_Device = TypeVar("_Device", Gpu, Link, Switch)

# Devices of shipped libraries are resolved once a process: no file and no parameter changes them.
_SHIPPED_BLOCKS: dict[Entry, _Blocks] = {}
_SHIPPED_DEVICES: dict[Entry, Any] = {}


class DeviceResolver:
    """Resolves each device once."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._report = reading, reading.report
        self._read: dict[Entry, _Blocks | None] = {}
        self._open: list[Entry] = []
        self._devices: dict[Entry, Any] = {}

    def stated_numbers(self) -> tuple[StatedNumber, ...]:
        """Return the numbers of the devices resolved so far; of two of one name those of the child."""
        # A child is begun before its parent.
        by_name = {entry.name: read for entry, read in reversed(self._read.items()) if read is not None}
        return tuple(each for name, read in by_name.items() for each in DeviceNumbers(read.figures).stated(name))

    def gpu(self, entry: Entry) -> Gpu:
        """Return the resolved GPU; report missing and wrong numbers."""
        return self._once(entry, self._gpu)

    def link(self, entry: Entry) -> Link:
        """Return the resolved link."""
        return self._once(entry, self._link)

    def switch(self, entry: Entry) -> Switch:
        """Return the resolved switch."""
        return self._once(entry, self._switch)

    def _once(self, entry: Entry, resolve: Callable[[Entry], _Device]) -> _Device:
        self._device(entry)  # its numbers are stated, though it was resolved before
        known = _SHIPPED_DEVICES if entry.scope.is_shipped else self._devices
        if entry not in known:
            known[entry] = resolve(entry)
        found: _Device = known[entry]
        return found

    def _gpu(self, entry: Entry) -> Gpu:
        read = self._device(entry)
        required = [wanted.name for wanted in GPU_NUMBERS]
        required += [f"l2.{wanted.name}" for wanted in CACHE_NUMBERS] + ["l2.per"]
        required += [
            f"{block}.{wanted.name}" for block, numbers in GPU_BLOCKS.items() for wanted in numbers if wanted.required
        ]
        missing = [path for path in required if path not in read.figures] + list(missing_of(read.figures))
        missing += ["gemm.tiles"] * ("tiles" not in read.tiles)
        missing += ["peak"] * (not any(path.startswith("peak.") for path in read.figures))
        self._require(entry, missing)
        self._check_gpu(entry, read)
        return _gpu(entry.name, read)

    def _link(self, entry: Entry) -> Link:
        figures = self._simple(entry)
        self._check_achieved(figures.by_path, "")
        words = self._device(entry).words
        said = {"ordered": words.get("ordered") == ("yes",)} | self._described(entry, figures)
        if "protocols" in words:
            said["protocols"] = tuple(each for each in CopyProtocol if each.value in words["protocols"])
        return figures.filled(Link, "", **said)

    def _switch(self, entry: Entry) -> Switch:
        figures = self._simple(entry)
        does = {word: self._device(entry).words.get(word) == ("yes",) for word in SWITCH_CHOICES}
        return figures.filled(Switch, "", **self._described(entry, figures), **does)

    @staticmethod
    def _described(entry: Entry, figures: DeviceNumbers) -> dict[str, Any]:
        return {"name": entry.name, "provenance": figures.provenance(entry.name)}

    def numbers(self, entry: Entry) -> DeviceNumbers:
        """Return all numbers that a device states or inherits, complete or not."""
        return DeviceNumbers(self._device(entry).figures)

    def _simple(self, entry: Entry) -> DeviceNumbers:
        read = self._device(entry)
        self._require(entry, [number.name for number in _SIMPLE[entry.kind] if number.name not in read.figures])
        return DeviceNumbers(read.figures)

    def _require(self, entry: Entry, missing: list[str]) -> None:
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            message = f"{entry.kind.value} {entry.name} is incomplete: {', '.join(missing)} {verb} missing"
            alone = entry.device.parent is None
            hint = f"to start from another one: {entry.kind.value} {entry.name} extends ... {{ ... }}" if alone else ""
            raise self._report.fail(Code.MGS209, message, _head_span(entry), hint)

    def _device(self, entry: Entry) -> _Blocks:
        """Read a device with its parents; remember a failure, so that it is reported once."""
        device = entry.device
        if entry in self._open or len(self._open) > _MAX_PARENTS:
            raise self._report.fail(Code.MGS205, f"'{entry.name}' extends itself", _head_span(entry))
        if entry not in self._read:
            self._read[entry] = None
            self._open.append(entry)
            with self._report.attempt():
                parent = self._parent(device, entry)
                failures_before = self._report.num_failures
                read = _SHIPPED_BLOCKS.get(entry) or self._blocks(entry, device, parent)
                if self._report.num_failures == failures_before:
                    self._read[entry] = read
                    if entry.scope.is_shipped:
                        _SHIPPED_BLOCKS[entry] = read
            self._open.pop()
        read_before = self._read[entry]
        if read_before is None:
            raise self._report.stop()
        return read_before

    def _parent(self, device: ast.DeviceNode, entry: Entry) -> _Blocks | None:
        if device.parent is None:
            return None
        return self._device(entry.scope.find(device.parent, entry.kind, self._report))

    def _blocks(self, entry: Entry, device: ast.DeviceNode, parent: _Blocks | None) -> _Blocks:
        base = None if parent is None else {path: each.value for path, each in parent.figures.items()}
        before = parent or _Blocks({})
        place = Place(entry.scope, clock=None if base is None else clock_of(base), base=base)
        reading = BlockReader(replace(self._reading, place=place))
        if entry.kind is Kind.GPU:
            reading.gpu(device.block, entry.name)
        else:
            reading.simple(device.kind, device.block, f"{device.kind} {entry.name}", Default())
        inherited = before.figures
        changed = set(map(_block_of, reading.figures)) | ({"gemm"} if reading.tiles else set())
        # An error measured on the parent does not hold for a GPU with other SMs or memory.
        stale = [path for path in _ACCURACY if changed & INPUTS[_block_of(path)] and path in inherited]
        inherited = {**inherited, **{path: replace(inherited[path], origin=Origin.DERIVED) for path in stale}}
        if "collectives.simple_bandwidth" in reading.figures:  # fitted on links of its own
            inherited = {path: each for path, each in inherited.items() if not path.startswith("collectives.link_")}
        if reading.figures.keys() >= _GEMM_FORM:  # those of types were fitted beside another form
            inherited = {path: each for path, each in inherited.items() if not path.startswith(_GEMMS_OF_TYPES)}
        derived = {block for block, inputs in INPUTS.items() if changed & inputs} if parent is not None else set()
        own = {path: replace(figure, owner=entry.name) for path, figure in reading.figures.items()}
        figures = {**inherited, **own}
        return _Blocks(
            figures,
            {**before.tiles, **reading.tiles},
            {**before.words, **reading.words},
            {**before.regions, **reading.regions},
            frozenset((derived | before.derived) - reading.regions.keys()),
            _l2_of(figures) if reading.figures.keys() >= _GEMM_FORM else before.fitted_l2,
        )

    def _check_gpu(self, entry: Entry, read: _Blocks) -> None:
        figures = read.figures
        self._check_achieved(figures, "hbm.")
        check_parts(figures, entry.declaration.span.source, self._report)
        per, sms = figures["l2.per"], figures["sms"]
        if sms.value.amount % per.value.amount:
            message = f"{sms.value.amount} sms do not divide by {per.value.amount} per cache"
            hint = f"say how many share one: cache l2 {{ per {sms.value.amount} sms; ... }}"
            raise self._report.fail(Code.MGS304, message, sms.span, hint)

    def _check_achieved(self, figures: Mapping[str, NumberWithOrigin], prefix: str) -> None:
        achieved, peak = figures[f"{prefix}achieved"], figures[f"{prefix}bandwidth"]
        if achieved.value.amount > peak.value.amount:
            raise self._report.fail(Code.MGS307, "achieved is more than bandwidth", achieved.span)


def _block_of(path: str) -> str:
    return path.partition(".")[0]


def _head_span(entry: Entry) -> Span:
    device, span = entry.device, entry.device.span
    return Span(span.source, span.start, span.start + len(device.kind) + 1 + len(device.name))


def _l2_of(figures: Mapping[str, NumberWithOrigin]) -> tuple[int, int] | None:
    """Return the size of an instance of L2 and the number of instances, None if the device does not state them."""
    if not figures.keys() >= {"l2.size", "l2.per", "sms"}:
        return None
    whole = DeviceNumbers(figures).whole
    return whole("l2.size"), whole("sms") // whole("l2.per")


def _gpu(name: str, read: _Blocks) -> Gpu:
    figures, exact = DeviceNumbers(read.figures), read.figures
    gemm = _gemm("gemm", figures, read.tiles, None if read.fitted_l2 == _l2_of(exact) else read.fitted_l2)
    of_types = {
        block.rpartition(".")[2]: _gemm(block, figures, read.tiles, gemm.fitted_l2)
        for block in _GEMMS_OF_TYPES
        if f"{block}.start" in exact
    }
    saturation = figures.filled_if(Saturation, "sm_copy.")
    return figures.filled(
        Gpu,
        "",
        name=name,
        peak_flops=tuple((each, figures.whole(path)) for each in DType if (path := f"peak.{each.value}") in exact),
        l2=figures.filled(Cache, "l2.", instances=figures.whole("sms") // figures.whole("l2.per")),
        gemm=gemm.with_types(of_types),
        dma=dma_of(figures),
        sm_copy=figures.filled(SmCopy, "sm_copy.", saturation=saturation),
        provenance=figures.provenance(name),
        collectives=figures.filled_if(Collectives, "collectives.", validated=figures.is_validated("collectives.error")),
        mall=figures.filled_if(Cache, "mall.", instances=1),
        calibrated=calibrated_of(read.regions, read.derived),
    )


def _gemm(
    block: str, figures: DeviceNumbers, tiles: Mapping[str, Tiles], fitted_l2: tuple[int, int] | None
) -> GemmModel:
    """The constants of ``block``, with the tiles that all types have."""
    return figures.filled(
        GemmModel,
        f"{block}.",
        tiles=tiles["tiles"],
        validated=figures.is_validated(f"{block}.error"),
        pair_tiles=tiles.get("pair_tiles", ()),
        cluster=figures.whole_if("gemm.cluster") or 1,
        fewest_sms=figures.whole_if("gemm.fewest_sms") or 0,
        fitted_l2=fitted_l2,
    )
