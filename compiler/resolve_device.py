"""Devices: gpus, links and switches, with inheritance, defaults and the origin of every number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from . import syntax as ast
from .codes import Code
from .diagnostics import Report
from .evaluate import Evaluator, Place, clock_of
from .figures import Default, Figure, FigureReader, Figures
from .names import Entry, Kind
from .phrases import head_of, known_head
from .scenario import Cache, Dma, DType, GemmModel, Gpu, Hbm, Launch, Link, Origin, SmCopy, Switch
from .source import Span
from .tables import CACHE_NUMBERS, GPU_BLOCKS, GPU_NUMBERS, GPU_WORDS, LINK_NUMBERS, PEAK, SWITCH_NUMBERS, Property
from .units import NUMBER

Tiles = tuple[tuple[int, int], ...]
_Extra = Mapping[str, Callable[[ast.Say, Default], None]]
_PER = Property("per", NUMBER, Fraction(1), Fraction(4096), whole=True)
_TILE = Property("a side of a tile", NUMBER, Fraction(1), Fraction(1 << 16), whole=True)
_SIMPLE = {Kind.LINK: LINK_NUMBERS, Kind.SWITCH: SWITCH_NUMBERS}
_MAX_PARENTS = 16


@dataclass(frozen=True, slots=True)
class _Read:
    """What the blocks of a device and of its parents say."""

    figures: Mapping[str, Figure]
    tiles: Tiles = ()


class DeviceResolver:
    """Resolves each device once."""

    def __init__(self, report: Report, evaluator: Evaluator) -> None:
        self._report, self._evaluator = report, evaluator
        self._reader = FigureReader(report, evaluator)
        self._read: dict[Entry, _Read | None] = {}
        self._open: list[Entry] = []

    def gpu(self, entry: Entry) -> Gpu:
        """Return the resolved GPU; what is missing or wrong is reported."""
        read = self._device(entry)
        required = [wanted.name for wanted in GPU_NUMBERS]
        required += [f"l2.{wanted.name}" for wanted in CACHE_NUMBERS] + ["l2.per"]
        required += [f"{block}.{wanted.name}" for block, numbers in GPU_BLOCKS.items() for wanted in numbers]
        missing = [path for path in required if path not in read.figures]
        missing += ["gemm.tiles"] * (not read.tiles)
        missing += ["peak"] * (not any(path.startswith("peak.") for path in read.figures))
        self._require(entry, missing)
        self._check_gpu(read)
        return _gpu(entry.name, Figures(read.figures), read.tiles)

    def link(self, entry: Entry) -> Link:
        """Return the resolved link."""
        figures = self._simple(entry)
        self._check_achieved(figures.by_path, "")
        rates = figures.whole("bandwidth"), figures.whole("achieved")
        return Link(entry.name, *rates, figures.ticks("latency"), figures.provenance(entry.name))

    def switch(self, entry: Entry) -> Switch:
        """Return the resolved switch."""
        figures = self._simple(entry)
        numbers = figures.whole("ports"), figures.whole("bandwidth"), figures.ticks("latency")
        return Switch(entry.name, *numbers, figures.provenance(entry.name))

    def _simple(self, entry: Entry) -> Figures:
        read = self._device(entry)
        self._require(entry, [each.name for each in _SIMPLE[entry.kind] if each.name not in read.figures])
        return Figures(read.figures)

    def _require(self, entry: Entry, missing: list[str]) -> None:
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            message = f"{entry.kind.value} {entry.name} is incomplete: {', '.join(missing)} {verb} missing"
            hint = f"to start from another one: {entry.kind.value} {entry.name} extends ... {{ ... }}"
            raise self._report.fail(Code.MGS209, message, _head_span(entry), hint)

    def _device(self, entry: Entry) -> _Read:
        """Read a device with its parents; a failure is remembered, so that it is reported once."""
        device = entry.declaration
        assert isinstance(device, ast.Device)
        if entry in self._open or len(self._open) > _MAX_PARENTS:
            raise self._report.fail(Code.MGS205, f"'{entry.name}' extends itself", _head_span(entry))
        if entry not in self._read:
            self._read[entry] = None
            self._open.append(entry)
            with self._report.attempt():
                parent = self._parent(device, entry)
                failures_before = self._report.num_failures
                read = self._blocks(entry, device, parent)
                if self._report.num_failures == failures_before:
                    self._read[entry] = read
            self._open.pop()
        read_before = self._read[entry]
        if read_before is None:
            raise self._report.stop()
        return read_before

    def _parent(self, device: ast.Device, entry: Entry) -> _Read | None:
        if device.parent is None:
            return None
        return self._device(entry.scope.find(device.parent, entry.kind, self._report))

    def _blocks(self, entry: Entry, device: ast.Device, parent: _Read | None) -> _Read:
        base = None if parent is None else {path: each.value for path, each in parent.figures.items()}
        plain = Place(entry.scope, clock=None if base is None else clock_of(base), base=base)
        reading = _Reading(self._report, self._reader, plain)
        if entry.kind is Kind.GPU:
            reading.gpu(device.block, entry.name)
        else:
            reading.numbers(device.block, _SIMPLE[entry.kind], "", f"{entry.kind.value} {entry.name}", Default(), {})
        inherited = parent.figures if parent is not None else {}
        tiles = reading.tiles or (parent.tiles if parent is not None else ())
        return _Read({**inherited, **reading.figures}, tiles)

    def _check_gpu(self, read: _Read) -> None:
        figures = read.figures
        self._check_achieved(figures, "hbm.")
        per, sms = figures["l2.per"], figures["sms"]
        if sms.value.amount % per.value.amount:
            message = f"{sms.value.amount} sms do not divide by {per.value.amount} per cache"
            raise self._report.fail(Code.MGS304, message, per.span)

    def _check_achieved(self, figures: Mapping[str, Figure], prefix: str) -> None:
        achieved, peak = figures[f"{prefix}achieved"], figures[f"{prefix}bandwidth"]
        if achieved.value.amount > peak.value.amount:
            raise self._report.fail(Code.MGS307, "achieved is more than bandwidth", achieved.span)


class _Reading:
    """One pass over the block of one device."""

    def __init__(self, report: Report, reader: FigureReader, place: Place) -> None:
        self._report, self._reader, self._place = report, reader, place
        self.figures: dict[str, Figure] = {}
        self.tiles: Tiles = ()
        self._spans: dict[str, Span] = {}

    def gpu(self, block: ast.Block, name: str) -> None:
        """Read the block of a gpu; the clock first, because cycles anywhere in it need it."""
        default = self._default(block, Default())
        for pass_words in (("clock",), tuple(word for word in GPU_WORDS if word != "clock")):
            for statement in block.statements:
                with self._report.attempt():
                    word = known_head(statement, GPU_WORDS, f"gpu {name}", self._report)
                    if word in pass_words and isinstance(statement, ast.Say):
                        self._gpu_statement(word, statement, default)
            if pass_words == ("clock",) and "clock" in self.figures:
                clock = self.figures["clock"].value.amount
                self._place = Place(self._place.scope, clock, self._place.base)

    def _gpu_statement(self, word: str, statement: ast.Say, default: Default) -> None:
        if word == "source":
            return
        if word == "peak":
            self._peaks(statement, default)
        elif word == "cache":
            self._cache(statement, default)
        elif word in GPU_BLOCKS:
            block = self._block_of(statement, word)
            extra: _Extra = {"tiles": self._tiles} if word == "gemm" else {}
            self.numbers(block, GPU_BLOCKS[word], f"{word}.", word, default, extra)
        else:
            wanted = next(each for each in GPU_NUMBERS if each.name == word)
            self._number(wanted, statement, "", default)

    def numbers(
        self,
        block: ast.Block,
        wanted: tuple[Property, ...],
        prefix: str,
        owner: str,
        default: Default,
        extra: _Extra,
    ) -> None:
        """Read the numbers of a block; ``extra`` reads statements that are not one number."""
        by_name = {each.name: each for each in wanted}
        default = self._default(block, default)
        for statement in block.statements:
            with self._report.attempt():
                word = known_head(statement, (*by_name, *extra, "source"), owner, self._report)
                assert isinstance(statement, ast.Say)
                if word in extra:
                    self._once(f"{prefix}{word}", statement.span)
                    extra[word](statement, default)
                elif word != "source":
                    self._number(by_name[word], statement, prefix, default)

    def _default(self, block: ast.Block, before: Default) -> Default:
        for statement in block.statements:
            word = head_of(statement) if isinstance(statement, ast.Say) else None
            if isinstance(statement, ast.Say) and word is not None and word.text == "source":
                with self._report.attempt():
                    return self._reader.default(statement, before)
        return before

    def _number(self, wanted: Property, statement: ast.Say, prefix: str, default: Default) -> None:
        path = f"{prefix}{wanted.name}"
        self._once(path, statement.span)
        if len(statement.phrase) > 1 or statement.block is not None:
            raise self._report.fail(Code.MGS116, f"{wanted.name} is one number", statement.span)
        self.figures[path] = self._reader.figure(wanted, statement.phrase[0], 1, self._place, default)

    def _once(self, path: str, span: Span) -> None:
        if path in self._spans:
            line = self._spans[path].location.line
            raise self._report.fail(Code.MGS206, f"{path} is said twice", span, f"the first is on line {line}")
        self._spans[path] = span

    def _block_of(self, statement: ast.Say, word: str) -> ast.Block:
        if statement.block is None:
            raise self._report.fail(Code.MGS116, f"{word} opens a block", statement.span, f"write: {word} {{ ... }}")
        return statement.block

    def _peaks(self, statement: ast.Say, default: Default) -> None:
        """Read ``peak bf16 1307 TFLOP/s, fp8 2615 TFLOP/s``."""
        for idx, group in enumerate(statement.phrase):
            skip = 1 if idx == 0 else 0
            with self._report.attempt():
                dtype = self._dtype(group.parts[skip] if len(group.parts) > skip else None, group.span)
                self._once(f"peak.{dtype.value}", group.span)
                figure = self._reader.figure(PEAK, group, skip + 1, self._place, default)
                self.figures[f"peak.{dtype.value}"] = figure

    def _dtype(self, part: ast.Expression | None, span: Span) -> DType:
        if isinstance(part, ast.Name) and part.text in [dtype.value for dtype in DType]:
            return DType(part.text)
        types = ", ".join(dtype.value for dtype in DType)
        raise self._report.fail(
            Code.MGS116, "peak says a type and a rate", span, f"peak bf16 989 TFLOP/s; types are {types}"
        )

    def _cache(self, statement: ast.Say, default: Default) -> None:
        match statement.phrase[0].parts[1:]:
            case (ast.Name(text="l2"),):
                block = self._block_of(statement, "cache l2")
                self.numbers(block, CACHE_NUMBERS, "l2.", "cache l2", default, {"per": self._per})
            case _:
                raise self._report.fail(
                    Code.MGS116, "the cache that is described is l2", statement.span, "cache l2 { ... }"
                )

    def _per(self, statement: ast.Say, default: Default) -> None:
        """Read ``per 38 sms``."""
        group = statement.phrase[0]
        match group.parts[1:]:
            case (count, ast.Name(text="sms")):
                value = self._reader.value(_PER, (count,), self._place)
                origin = self._reader.origin(group.note, default)
                self.figures["l2.per"] = Figure(value, origin.origin, origin.source, count.span)
            case _:
                raise self._report.fail(
                    Code.MGS116, "per says how many sms share a cache", statement.span, "per 38 sms"
                )

    def _tiles(self, statement: ast.Say, default: Default) -> None:
        """Read ``tiles [[128, 128], [256, 256]]``."""
        match statement.phrase[0].parts[1:]:
            case (ast.Listed(items=items),) if items and all(isinstance(item, ast.Listed) for item in items):
                self.tiles = tuple(self._tile(item) for item in items)
            case _:
                hint = "tiles [[128, 128], [256, 256]]"
                raise self._report.fail(Code.MGS116, "tiles is a list of pairs", statement.span, hint)

    def _tile(self, item: ast.Expression) -> tuple[int, int]:
        if not isinstance(item, ast.Listed) or len(item.items) != 2:
            raise self._report.fail(Code.MGS116, "a tile has two sides", item.span, "[128, 256]")
        sides = [int(self._reader.value(_TILE, (side,), self._place).amount) for side in item.items]
        return sides[0], sides[1]


def _head_span(entry: Entry) -> Span:
    span = entry.declaration.span
    device = entry.declaration
    assert isinstance(device, ast.Device)
    return Span(span.source, span.start, span.start + len(device.kind) + 1 + len(device.name))


def _gpu(name: str, figures: Figures, tiles: Tiles) -> Gpu:
    whole, ticks, exact = figures.whole, figures.ticks, figures.by_path
    return Gpu(
        name=name,
        sms=whole("sms"),
        clock_hz=whole("clock"),
        line_bytes=whole("line"),
        peak_flops=tuple((each, whole(f"peak.{each.value}")) for each in DType if f"peak.{each.value}" in exact),
        l2=Cache(whole("l2.size"), whole("sms") // whole("l2.per"), whole("l2.bandwidth"), ticks("l2.latency")),
        hbm=Hbm(whole("hbm.capacity"), whole("hbm.bandwidth"), whole("hbm.achieved"), ticks("hbm.latency")),
        gemm=GemmModel(
            start_ticks=ticks("gemm.start"),
            mma_fraction=exact["gemm.mma"].value.amount,
            hbm_fraction=exact["gemm.hbm"].value.amount,
            tile_ticks=ticks("gemm.tile"),
            k_step_ticks=ticks("gemm.k_step"),
            split_ticks=ticks("gemm.split"),
            split_bytes_per_s=whole("gemm.split_bandwidth"),
            exponent=exact["gemm.exponent"].value.amount,
            quantisation=exact["gemm.quantisation"].value.amount,
            tiles=tiles,
            error=exact["gemm.error"].value.amount,
            resolution=exact["gemm.resolution"].value.amount,
            validated=exact["gemm.error"].origin in (Origin.MEASURED, Origin.FITTED),
        ),
        dma=Dma(whole("dma.engines"), ticks("dma.setup"), whole("dma.bandwidth")),
        sm_copy=SmCopy(whole("sm_copy.bandwidth"), ticks("sm_copy.setup")),
        launch=Launch(ticks("launch.kernel"), ticks("launch.event")),
        provenance=figures.provenance(name),
    )
