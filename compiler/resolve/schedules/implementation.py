"""Implementations: ``implementation flux { gpus H100; ag_gemm { schedule ...; path copy_engine; rate 100 %; ... } }``.

An implementation is read for one system, whose ranks and engines its schedules take. Each of its blocks is a method:
how it carries out a pattern, ``ag_gemm { schedule ...; path ...; call 40 us }``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypeVar

from ...codes import Code
from ...ir import (
    DType,
    ExchangeKernel,
    Implementation,
    Method,
    OpChoice,
    OpShape,
    Pattern,
    Provenance,
    Rejection,
    SumForm,
    SumKernel,
    System,
    TransferPath,
)
from ...planning.knobs.structure import CHUNKS
from ...templates import BY_NAME
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, Span, did_you_mean, listing
from ...text.load import load
from ...text.names import Entry, Kind, shipped_libraries
from ...text.vocabulary import METHOD_NUMBERS, METHOD_REQUIRED, METHOD_SIZES
from ..devices.device_blocks import BlockReader, Tiles
from ..values.device_numbers import Default, DeviceNumbers, NumberWithOrigin, default_of
from ..values.evaluate import ExpressionEvaluator, Place, Reading
from ..values.words import behind, head_word, said_in
from .implementation_blocks import EXPERTS, STACK, Layer, read_experts, read_stack
from .schedule import ChoiceReader

EXCHANGE_REQUIRED = tuple(f"exchange_{name}" for name in ("start", "bandwidth", "least_ranks", "most_ranks"))


SENDS = ("ranks", "copies")
"""Rows go once to each rank that has one of their experts, or once for each expert."""


_EXAMPLE = "schedule hetero_unfused_1d(engine=dma, kernel=persistent)"


# An error is that of the numbers it was measured with, and so is where they hold: a child that changes one does not
# inherit these.
_KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {"gpus": (), "dtypes": tuple(each.value for each in DType)}


_OF_THE_NUMBERS = ("error", "shortest", "most_rows", "most_ranks", *_KNOWN_NAMES)


def names_said(statement: ast.Say, report: Report) -> tuple[str, ...]:
    """Read ``gpus H100, H800`` or ``dtypes bf16, fp8``."""
    words, head = behind(statement, report), head_word(statement)
    names, known = [], _KNOWN_NAMES[head]
    for each in words.take_list(f"one of {head}"):
        if not isinstance(each, ast.Name) or (known and each.text not in known):
            hint = did_you_mean(each.span.text[:40], known) or f"{head} {', '.join(known[:2]) or 'H100, H800'}"
            raise report.fail(Code.MGS204, f"unknown {head[:-1]} '{each.span.text[:40]}'", each.span, hint)
        names.append(each.text)
    words.end()
    return tuple(dict.fromkeys(names))


class MethodReader:
    """Reads what an implementation and those that it extends say of one pattern; ``name`` is its own."""

    def __init__(self, system: System, reading: Reading, name: str) -> None:
        self._system, self._reading, self._report, self._name = system, reading, reading.report, name
        self._figures: dict[str, NumberWithOrigin] = {}
        self._pairs: dict[str, Tiles] = {}
        self._choice: OpChoice | None = None
        self._path: TransferPath | None = None
        self._copies = False
        self._known: dict[str, tuple[str, ...]] = {}
        self._spans: dict[str, Span] = {}

    def read(self, pattern: Pattern, word: str, layers: Sequence[Layer]) -> tuple[Method, DeviceNumbers]:
        """Return the method and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
        with self._report.whole():
            for layer in layers:
                self._read(word, layer)
        if self._choice is None or self._path is None:
            lacking = "schedule" if self._choice is None else "path"
            message, statement = f"{word} of {layers[-1].entry.name} does not say its {lacking}", layers[-1].statement
            raise self._report.fail(Code.MGS209, message, statement.span, f"for instance: {_EXAMPLE}; path copy_engine")
        self._check(self._choice, self._path)
        self._check_kernels(pattern, self._path)
        numbers = DeviceNumbers(self._figures)
        return self._method(pattern, self._choice, self._path, numbers), numbers

    def _read(self, word: str, layer: Layer) -> None:
        """Read one block over what its parents say."""
        statement, entry = layer.statement, layer.entry
        if statement.block is None:
            hint = f"write: {word} {{ {_EXAMPLE} }}"
            raise self._report.fail(Code.MGS116, f"{word} opens a block", statement.span, hint)
        base = {name: figure.value for name, figure in self._figures.items()} if self._figures else None
        reading = replace(self._reading, place=Place(entry.scope, base=base))
        block, choices = BlockReader(reading), ChoiceReader(self._system, reading)

        self._forget(statement.block)
        extra = {
            "schedule": lambda said, _: self._take_schedule(said, entry, choices),
            "path": lambda said, _: self._take_path(said, choices),
            "sends": lambda said, _: self._take_sends(said, choices),
            "tiles": block.read_tiles,
            **dict.fromkeys(_KNOWN_NAMES, lambda said, _: self._take_names(said)),
        }
        extra |= dict.fromkeys(METHOD_SIZES, block.read_sizes)
        block.numbers(statement.block, METHOD_NUMBERS, "", word, layer.default, extra)
        owner = f"{entry.name}.{word}"
        said = {name: replace(figure, owner=owner) for name, figure in block.figures.items()}
        self._figures = {**self._figures, **said}
        self._pairs |= block.tiles

    def _forget(self, block: ast.BlockNode) -> None:
        """Forget what does not hold for a child with ``block``, which states a number of its own."""
        heads = [head_word(statement) for statement in block.statements if isinstance(statement, ast.Say)]
        if any(head not in ("source", *_OF_THE_NUMBERS) for head in heads):
            self._figures = {name: each for name, each in self._figures.items() if name not in _OF_THE_NUMBERS}
            self._known = {}

    def _take_schedule(self, statement: ast.Say, entry: Entry, choices: ChoiceReader) -> None:
        """Read ``schedule shard_p2p(engine=dma(2))``."""
        group = statement.phrase[0]
        if len(statement.phrase) > 1 or len(group.parts) != 2:
            raise self._report.fail(Code.MGS116, "schedule says one template", statement.span, _EXAMPLE)
        self._spans["schedule"] = group.parts[1].span
        workload = ast.Path((entry.name,), span=statement.span)
        self._choice = choices.choice(ast.TemplateNode(entry.name, workload, group.parts[1:], span=statement.span))

    def _take_names(self, statement: ast.Say) -> None:
        self._known[head_word(statement)] = names_said(statement, self._report)

    def _take_sends(self, statement: ast.Say, choices: ChoiceReader) -> None:
        self._copies = self._word(statement, "sends", SENDS, choices) == SENDS[1]

    def _take_path(self, statement: ast.Say, choices: ChoiceReader) -> None:
        self._path = TransferPath(self._word(statement, "path", tuple(path.value for path in TransferPath), choices))

    def _word(self, statement: ast.Say, head: str, known: tuple[str, ...], choices: ChoiceReader) -> str:
        """Read ``path library``, or ``sends copies``."""
        value = behind(statement, self._report).only("how bytes move")
        self._spans[head] = value.span
        return choices.word(head, value, known)

    def _check(self, choice: OpChoice, path: TransferPath) -> None:
        """Report statements that contradict each other."""
        figures, at = self._figures, self._spans["path"]
        call = figures["call"].value.amount if "call" in figures else Fraction(0)
        found: tuple[str, Span, str] | None = None
        if path is TransferPath.LIBRARY and choice.template != "serial":
            found = "a library overlaps nothing", self._spans["schedule"], "schedule serial"
        elif path is not TransferPath.LIBRARY and path.engine is not choice.engine.kind:
            hint = f"the schedule has engine={choice.engine}"
            found = f"{path.value} is no path of {choice.engine.kind.value}", at, hint
        elif (path is TransferPath.TILE_STORES) is not choice.engine.by_tiles:
            found = "path tile_stores and engine=sm(tiles) say the same", at, "say both, or neither"
        elif path is TransferPath.IN_SWITCH and choice.algorithm != "nvls":
            found = (
                "copies and sums of the switch need algorithm=nvls",
                at,
                "schedule serial(algorithm=nvls, engine=sm(8))",
            )
        elif "rereads_below" in figures and "tiles" not in self._pairs:
            found = "rereads_below needs tiles", figures["rereads_below"].span, "tiles [[128, 256]]"
        elif "rows_per_read" in figures and "rereads_below" not in figures:
            found = "rows_per_read needs rereads_below", figures["rows_per_read"].span, "rereads_below 4096"
        elif "graph_call" in figures and figures["graph_call"].value.amount > call:
            found = "graph_call is above call", figures["graph_call"].span, "a graph calls nothing from the host"
        elif "pieces" in figures and not BY_NAME[choice.template].cuts_shards:
            found = f"{choice.template} cuts no shards", figures["pieces"].span, "leave pieces out"
        elif "pieces" in figures and choice.chunks != BY_NAME[choice.template].default_pieces * self._system.num_ranks:
            found = f"pieces and {CHUNKS.word} say the same", figures["pieces"].span, "pieces of each shard"
        if found is not None:
            message, span, hint = found
            raise self._report.fail(Code.MGS314, message, span, hint)

    def _check_kernels(self, pattern: Pattern, path: TransferPath) -> None:
        """Report numbers of a framework's own all_reduce where none is made, or that lack its sizes."""
        for form in SumForm:
            said = [name for name in (*self._figures, *self._pairs) if name.startswith(form.value)]
            sizes = f"{form.value}_below"
            if said and (path is not TransferPath.LIBRARY or pattern is not Pattern.GEMM_AR):
                message, hint = f"{said[0]} is of a library's gemm_ar", "gemm_ar { schedule serial; path library }"
            elif said and sizes not in self._pairs:
                message, hint = f"{said[0]} needs {sizes}", f"{sizes} [[8, 256 KiB]]"
            else:
                continue
            raise self._report.fail(Code.MGS314, message, self._spans["path"], hint)
        self._check_exchange(pattern, path)

    def _check_exchange(self, pattern: Pattern, path: TransferPath) -> None:
        """Report numbers of a framework's own exchange where none is made, or that lack others."""
        said = [name for name in self._figures if name.startswith("exchange_")]
        lacking = [name for name in EXCHANGE_REQUIRED if name not in said]
        if said and (path is not TransferPath.LIBRARY or pattern not in (Pattern.A2A_GEMM, Pattern.GEMM_A2A)):
            message, hint = f"{said[0]} is of a library's a2a_gemm or gemm_a2a", "schedule serial; path library"
        elif lacking and (said or "sends" in self._spans):
            message, hint = f"an exchange needs {lacking[0]}", "state it, with its source"
        else:
            return
        raise self._report.fail(Code.MGS314, message, self._spans["path"], hint)

    def _routed(self, numbers: DeviceNumbers, *, back: bool) -> ExchangeKernel | None:
        """The framework's own exchange, None if no number is of one."""
        if "exchange_bandwidth" not in numbers.by_path:
            return None
        return numbers.filled(ExchangeKernel, "exchange_", copies=self._copies, name=self._name, back=back)

    def _kernels(self, numbers: DeviceNumbers) -> tuple[SumKernel, ...]:
        return tuple(
            SumKernel(
                form,
                numbers.ticks_if(f"{form.value}_start") or 0,
                numbers.ticks_if(f"{form.value}_step") or 0,
                numbers.whole_if(f"{form.value}_bandwidth") or 1,
                self._pairs[f"{form.value}_below"],
            )
            for form in SumForm
            if f"{form.value}_below" in self._pairs
        )

    def _method(self, pattern: Pattern, choice: OpChoice, path: TransferPath, numbers: DeviceNumbers) -> Method:
        pieces = numbers.whole_if("pieces")
        if pieces is not None:
            choice = replace(choice, chunks=pieces * self._system.num_ranks)
        kernels, routed = self._kernels(numbers), self._routed(numbers, back=pattern is Pattern.GEMM_A2A)
        needed = [*(("call",) if path is TransferPath.LIBRARY else METHOD_REQUIRED)]
        needed += [f"{kernel.form.value}_{name}" for kernel in kernels for name in ("start", "bandwidth")]
        return numbers.filled(
            Method,
            "",
            pattern=pattern,
            choice=choice,
            path=path,
            tiles=self._pairs.get("tiles", ()),
            missing=tuple(name for name in needed if name not in numbers.by_path),
            gpus=self._known.get("gpus", ()),
            dtypes=tuple(map(DType, self._known.get("dtypes", ()))),
            kernels=kernels,
            routed=routed,
        )


T = TypeVar("T")

FOLDER = "implementations/"
_USUAL = 'use "nvidia/h100"\nsystem usual { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }'


PATTERN_WORDS: Mapping[str, Pattern] = {
    pattern.value.replace("+", "_").lower(): pattern for pattern in Pattern if pattern.overlaps
}


def reject_implementation(implementation: Implementation, shape: OpShape) -> Rejection | None:
    """Why ``implementation`` cannot be predicted for ``shape``, None if it can."""
    name, method = implementation.name, implementation.method_of(shape)
    if implementation.experts is not None and shape.routing is not None:
        return None
    if method is None:
        return Rejection(Code.MGS530, f"{name} does not do {shape.pattern.value}", f"it does {implementation.does}")
    if method.missing:
        missing = ", ".join(method.missing)
        return Rejection(Code.MGS209, f"{name} cannot be predicted: {missing} not known", "say it, with its source")
    dtype = shape.gemm.dtype if shape.gemm is not None else None
    if dtype is not None and dtype not in implementation.dtypes:
        known = ", ".join(each.value for each in implementation.dtypes)
        return Rejection(Code.MGS530, f"{name} does not do {dtype.value}", f"it does {known}")
    return None


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The statements of one implementation by their first word, and the origin of its numbers without notes."""

    entry: Entry
    said: Mapping[str, ast.Say]
    default: Default


class ImplementationReader:
    """Reads implementations for one system."""

    def __init__(self, system: System, reading: Reading) -> None:
        self._system, self._reading, self._report = system, reading, reading.report
        self._provenance: list[Provenance] = []

    def read(self, entry: Entry) -> Implementation:
        """Return the implementation that ``entry`` declares; report what is wrong with it."""
        failures_before = self._report.num_failures
        parsed = [self._parsed(each) for each in self._with_parents(entry)]
        said = {word: statement for each in parsed for word, statement in each.said.items()}
        self._provenance = []
        methods = tuple(self._methods(entry, parsed))
        experts = self._part(EXPERTS, parsed, lambda layers: read_experts(layers, self._reading))
        stack = self._part(STACK, parsed, lambda layers: read_stack(layers, self._reading))
        gpus, types = (names_said(said[word], self._report) if word in said else () for word in ("gpus", "dtypes"))
        dtypes = tuple(map(DType, types)) or tuple(each for each in DType if each.block == 1)
        nothing = not methods and experts is None and stack is None
        if nothing and self._report.num_failures == failures_before:
            hint = f"what it does is {listing((*PATTERN_WORDS, EXPERTS, STACK))}: ag_gemm {{ ... }}"
            self._report.error(Code.MGS209, f"implementation {entry.name} does nothing", entry.declaration.span, hint)
        if self._report.num_failures > failures_before or nothing:
            raise self._report.stop()
        return Implementation(entry.name, gpus, dtypes, methods, tuple(self._provenance), experts, stack)

    def _with_parents(self, entry: Entry) -> tuple[Entry, ...]:
        """Return the implementations that ``entry`` extends, the most distant first, and ``entry``."""
        line = [entry]
        while (path := line[0].device.parent) is not None:
            parent = line[0].scope.find(path, Kind.IMPLEMENTATION, self._report)
            if parent in line:
                raise self._report.fail(Code.MGS205, f"'{parent.name}' extends itself", path.span)
            line.insert(0, parent)
        return tuple(line)

    def _parsed(self, entry: Entry) -> _Parsed:
        """Return the statements of one implementation; report those that are unknown or said twice."""
        words = ("source", "gpus", "dtypes", *PATTERN_WORDS, EXPERTS, STACK)
        said = dict(said_in(entry.device.block, words, f"implementation {entry.name}", self._report))
        default = default_of(said["source"], self._report) if "source" in said else Default()
        return _Parsed(entry, said, default)

    def _methods(self, entry: Entry, parsed: Sequence[_Parsed]) -> Iterator[Method]:
        for word in dict.fromkeys(word for each in parsed for word in each.said if word in PATTERN_WORDS):
            reader = MethodReader(self._system, self._reading, entry.name)
            method = self._part(word, parsed, partial(reader.read, PATTERN_WORDS[word], word))
            yield from (method,) if method is not None else ()

    def _part(
        self, word: str, parsed: Sequence[_Parsed], read: Callable[[list[Layer]], tuple[T, DeviceNumbers]]
    ) -> T | None:
        """Read a block, None if there is none, and note the provenance of its numbers."""
        layers = [Layer(each.entry, each.said[word], each.default) for each in parsed if word in each.said]
        with self._report.attempt():
            if layers:
                part, numbers = read(layers)
                self._provenance += numbers.provenance(f"{parsed[-1].entry.name}.{word}")
                return part
        return None


def usual_systems() -> list[Entry]:
    """Return the system for which the implementations of a file without one are read: 8 H100 behind a switch."""
    return load(Source("<usual>", _USUAL), Report()).of_kind(Kind.SYSTEM)


@lru_cache(maxsize=64)
def shipped_implementations(system: System, folder: str = FOLDER) -> tuple[Implementation, ...]:
    """Return every implementation shipped in ``folder`` whose schedules engines and ranks of ``system`` can take."""
    found: list[Implementation] = []
    text = "\n".join(f'use "{name}"' for name in shipped_libraries() if name.startswith(folder))
    scope = load(Source("<shipped>", text), Report())
    for entry in scope.devices():
        report = Report()
        with report.trial():
            if entry.kind is Kind.IMPLEMENTATION:
                reading = Reading(Place(scope), ExpressionEvaluator(report, {}), report)
                found.append(ImplementationReader(system, reading).read(entry))
        unexpected = [each for each in report.diagnostics if each.code is not Code.MGS401]
        assert not unexpected, f"the shipped implementation {entry.name}: {unexpected[0].message}"
    return tuple(found)
