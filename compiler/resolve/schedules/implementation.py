"""Implementations: ``implementation flux { gpus H100; ag_gemm { schedule ...; path copy_engine; rate 100 %; ... } }``.

An implementation is read for one system, whose ranks and engines its schedules take.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ...codes import Code
from ...ir import (
    Choice,
    DType,
    EngineMode,
    Implementation,
    Method,
    Pattern,
    Provenance,
    Rejection,
    System,
    TransferPath,
    Workload,
)
from ...planning.knobs.structure import CHUNKS
from ...templates import BY_NAME
from ...text import syntax as ast
from ...text.diagnostics import Report, did_you_mean, listing
from ...text.names import Entry
from ...text.source import Span
from ...text.vocabulary import METHOD_NUMBERS, METHOD_REQUIRED
from ..devices.device_blocks import BlockReader
from ..values.device_numbers import Default, DeviceNumbers, FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, known_head
from .template import ChoiceReader

PATTERN_WORDS: Mapping[str, Pattern] = {
    pattern.value.replace("+", "_").lower(): pattern for pattern in Pattern if pattern.overlaps
}
_EXAMPLE = "schedule hetero_unfused_1d(engine=dma, kernel=persistent)"


def reject_implementation(implementation: Implementation, workload: Workload) -> Rejection | None:
    """Why ``implementation`` cannot be predicted for ``workload``, None if it can."""
    name, method = implementation.name, implementation.method(workload.pattern)
    if method is None:
        does = ", ".join(each.pattern.value for each in implementation.methods)
        return Rejection(Code.MGS530, f"{name} does not do {workload.pattern.value}", f"it does {does}")
    if method.missing:
        missing = ", ".join(method.missing)
        return Rejection(Code.MGS209, f"{name} cannot be predicted: {missing} not known", "say it, with its source")
    dtype = workload.gemm.dtype if workload.gemm is not None else None
    if dtype is not None and dtype not in implementation.dtypes:
        known = ", ".join(each.value for each in implementation.dtypes)
        return Rejection(Code.MGS530, f"{name} does not do {dtype.value}", f"it does {known}")
    return None


class ImplementationReader:
    """Reads implementations for one system."""

    def __init__(self, system: System, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._system, self._evaluator, self._report = system, evaluator, report
        self._figures = FigureReader(report, evaluator)

    def read(self, entry: Entry) -> Implementation:
        """Return the implementation that ``entry`` declares; report what is wrong with it."""
        declaration, failures_before = entry.declaration, self._report.num_failures
        assert isinstance(declaration, ast.Device)
        said: dict[str, ast.Say] = {}
        for statement in declaration.block.statements:
            with self._report.attempt():
                words = ("source", "gpus", "dtypes", *PATTERN_WORDS)
                word = known_head(statement, words, f"implementation {entry.name}", self._report)
                assert isinstance(statement, ast.Say)
                if word in said:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                said[word] = statement
        default = self._figures.default(said["source"], Default()) if "source" in said else Default()
        methods, provenance = self._methods(entry, said, default)
        gpus = self._names(said, "gpus", ())
        dtypes = tuple(DType(name) for name in self._names(said, "dtypes", tuple(each.value for each in DType)))
        dtypes = dtypes or tuple(DType)
        if not methods and self._report.num_failures == failures_before:
            hint = f"what it does is {listing(PATTERN_WORDS)}: ag_gemm {{ ... }}"
            self._report.error(Code.MGS209, f"implementation {entry.name} does nothing", declaration.span, hint)
        if self._report.num_failures > failures_before or not methods:
            raise self._report.stop()
        return Implementation(entry.name, gpus, dtypes, methods, provenance)

    def _methods(
        self, entry: Entry, said: Mapping[str, ast.Say], default: Default
    ) -> tuple[tuple[Method, ...], tuple[Provenance, ...]]:
        methods: list[Method] = []
        provenance: list[Provenance] = []
        for word in (word for word in said if word in PATTERN_WORDS):
            with self._report.attempt():
                method, numbers = _MethodReader(self._system, self._evaluator, self._report, entry).read(
                    word, said[word], default
                )
                methods.append(method)
                provenance += numbers.provenance(f"{entry.name}.{word}")
        return tuple(methods), tuple(provenance)

    def _names(self, said: Mapping[str, ast.Say], word: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Read ``gpus H100, H800``; one of ``known`` each, if there are such."""
        if word not in said:
            return ()
        words = Words(said[word].phrase, self._report)
        words.take(word)
        names = []
        for each in words.take_list(f"one of {word}"):
            if not isinstance(each, ast.Name) or (known and each.text not in known):
                hint = did_you_mean(each.span.text[:40], known) or f"{word} {', '.join(known[:2]) or 'H100, H800'}"
                raise self._report.fail(Code.MGS204, f"unknown {word[:-1]} '{each.span.text[:40]}'", each.span, hint)
            names.append(each.text)
        words.end()
        return tuple(dict.fromkeys(names))


class _MethodReader:
    """Reads the block of one pattern."""

    def __init__(self, system: System, evaluator: ExpressionEvaluator, report: Report, entry: Entry) -> None:
        self._report, self._entry = report, entry
        self._place = Place(entry.scope)
        self._block = BlockReader(report, FigureReader(report, evaluator), self._place)
        self._choices = ChoiceReader(system, self._place, evaluator, report)
        self._choice: Choice | None = None
        self._path: TransferPath | None = None
        self._spans: dict[str, Span] = {}

    def read(self, word: str, statement: ast.Say, default: Default) -> tuple[Method, DeviceNumbers]:
        """Return the method and its numbers."""
        if statement.block is None:
            raise self._report.fail(
                Code.MGS116, f"{word} opens a block", statement.span, f"write: {word} {{ {_EXAMPLE} }}"
            )
        failures_before = self._report.num_failures
        extra = {"schedule": self._schedule, "path": self._take_path, "tiles": self._block.read_tiles}
        self._block.numbers(statement.block, METHOD_NUMBERS, "", word, default, extra)
        if self._report.num_failures > failures_before:
            raise self._report.stop()
        if self._choice is None or self._path is None:
            lacking = "schedule" if self._choice is None else "path"
            message = f"{word} of {self._entry.name} does not say its {lacking}"
            raise self._report.fail(Code.MGS209, message, statement.span, f"for instance: {_EXAMPLE}; path copy_engine")
        self._check(self._choice, self._path)
        numbers = DeviceNumbers(self._block.figures)
        return self._method(PATTERN_WORDS[word], self._choice, self._path, numbers), numbers

    def _schedule(self, statement: ast.Say, default: Default) -> None:
        """Read ``schedule shard_p2p(engine=dma(2))``."""
        group = statement.phrase[0]
        if len(statement.phrase) > 1 or len(group.parts) != 2:
            raise self._report.fail(Code.MGS116, "schedule says one template", statement.span, _EXAMPLE)
        self._spans["schedule"] = group.parts[1].span
        workload = ast.Path((self._entry.name,), span=statement.span)
        template = ast.Template(self._entry.name, workload, group.parts[1:], span=statement.span)
        self._choice = self._choices.choice(template)

    def _take_path(self, statement: ast.Say, default: Default) -> None:
        words = Words(statement.phrase, self._report)
        words.take("path")
        value = words.take("how bytes move")
        words.end()
        known = tuple(path.value for path in TransferPath)
        self._spans["path"] = value.span
        self._path = TransferPath(self._choices.word("path", value, known))

    def _check(self, choice: Choice, path: TransferPath) -> None:
        """Report statements that contradict each other."""
        figures, at = self._block.figures, self._spans["path"]
        found: tuple[str, Span, str] | None = None
        if path is TransferPath.LIBRARY and choice.template != "serial":
            found = "a library overlaps nothing", self._spans["schedule"], "schedule serial"
        elif path is not TransferPath.LIBRARY and path.engine is not choice.engine.kind:
            hint = f"the schedule has engine={choice.engine}"
            found = f"{path.value} is no path of {choice.engine.kind.value}", at, hint
        elif path is TransferPath.TILE_STORES and choice.engine.mode is not EngineMode.SHARED:
            found = "stores from tiles share the SMs of the GEMM", at, "engine=sm(64, shared)"
        elif path is TransferPath.IN_SWITCH and choice.algorithm != "nvls":
            found = (
                "copies and sums of the switch need algorithm=nvls",
                at,
                "schedule serial(algorithm=nvls, engine=sm(8))",
            )
        elif "rereads_below" in figures and not self._block.tiles:
            found = "rereads_below needs tiles", figures["rereads_below"].span, "tiles [[128, 256]]"
        elif "rows_per_read" in figures and "rereads_below" not in figures:
            found = "rows_per_read needs rereads_below", figures["rows_per_read"].span, "rereads_below 4096"
        elif "pieces" in figures and not BY_NAME[choice.template].cuts_shards:
            found = f"{choice.template} cuts no shards", figures["pieces"].span, "leave pieces out"
        elif "pieces" in figures and choice.chunks != self._usual_chunks(choice):
            found = f"pieces and {CHUNKS.word} say the same", figures["pieces"].span, "pieces of each shard"
        if found is not None:
            message, span, hint = found
            raise self._report.fail(Code.MGS314, message, span, hint)

    def _usual_chunks(self, choice: Choice) -> int:
        return BY_NAME[choice.template].default_pieces * self._choices.num_ranks

    def _method(self, pattern: Pattern, choice: Choice, path: TransferPath, numbers: DeviceNumbers) -> Method:
        pieces = numbers.whole_if("pieces")
        if pieces is not None:
            choice = replace(choice, chunks=pieces * self._choices.num_ranks)
        needed = ("call",) if path is TransferPath.LIBRARY else METHOD_REQUIRED
        exact = {name: figure.value.amount for name, figure in numbers.by_path.items()}
        return Method(
            pattern,
            choice,
            path,
            rate=exact.get("rate", Fraction(1)),
            limit_bytes_per_s=numbers.whole_if("limit"),
            call_ticks=numbers.ticks_if("call") or 0,
            barrier_ticks=numbers.ticks_if("barrier") or 0,
            step_ticks=numbers.ticks_if("step") or 0,
            tiles=self._block.tiles.get("tiles", ()),
            rereads_below=numbers.whole_if("rereads_below") or 0,
            rows_per_read=exact.get("rows_per_read", Fraction(1)),
            missing=tuple(name for name in needed if name not in exact),
            error=exact.get("error"),
            shortest_ticks=numbers.ticks_if("shortest") or 0,
        )
