"""One block of an implementation: how it carries out a pattern, ``ag_gemm { schedule ...; path ...; call 40 us }``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...ir import Choice, Method, Pattern, System, TransferPath
from ...planning.knobs.structure import CHUNKS
from ...templates import BY_NAME
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Entry
from ...text.source import Span
from ...text.vocabulary import METHOD_NUMBERS, METHOD_REQUIRED
from ..devices.device_blocks import BlockReader, Tiles
from ..values.device_numbers import Default, DeviceNumbers, FigureReader, NumberWithOrigin
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, head_of
from .template import ChoiceReader

_EXAMPLE = "schedule hetero_unfused_1d(engine=dma, kernel=persistent)"
# An error is that of the numbers it was measured with: a child that changes one does not inherit it.
_OF_THE_NUMBERS = ("error", "shortest")


@dataclass(frozen=True, slots=True)
class Layer:
    """The statement of a pattern in one implementation ``entry``, and the origin of its numbers without notes."""

    entry: Entry
    statement: ast.Say
    default: Default


class MethodReader:
    """Reads what an implementation and those that it extends say of one pattern."""

    def __init__(self, system: System, evaluator: ExpressionEvaluator, report: Report) -> None:
        self._system, self._evaluator, self._report = system, evaluator, report
        self._figures: dict[str, NumberWithOrigin] = {}
        self._tiles: Tiles = ()
        self._choice: Choice | None = None
        self._path: TransferPath | None = None
        self._spans: dict[str, Span] = {}

    def read(self, pattern: Pattern, word: str, layers: Sequence[Layer]) -> tuple[Method, DeviceNumbers]:
        """Return the method and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
        failures_before = self._report.num_failures
        for layer in layers:
            self._read(word, layer)
        if self._report.num_failures > failures_before:
            raise self._report.stop()
        if self._choice is None or self._path is None:
            lacking = "schedule" if self._choice is None else "path"
            message, statement = f"{word} of {layers[-1].entry.name} does not say its {lacking}", layers[-1].statement
            raise self._report.fail(Code.MGS209, message, statement.span, f"for instance: {_EXAMPLE}; path copy_engine")
        self._check(self._choice, self._path)
        numbers = DeviceNumbers(self._figures)
        return self._method(pattern, self._choice, self._path, numbers), numbers

    def _read(self, word: str, layer: Layer) -> None:
        """Read one block over what its parents say."""
        statement, entry = layer.statement, layer.entry
        if statement.block is None:
            hint = f"write: {word} {{ {_EXAMPLE} }}"
            raise self._report.fail(Code.MGS116, f"{word} opens a block", statement.span, hint)
        base = {name: figure.value for name, figure in self._figures.items()} if self._figures else None
        place = Place(entry.scope, base=base)
        block = BlockReader(self._report, FigureReader(self._report, self._evaluator), place)
        choices = ChoiceReader(self._system, place, self._evaluator, self._report)

        def schedule(statement: ast.Say, default: Default) -> None:
            self._take_schedule(statement, entry, choices)

        def path(statement: ast.Say, default: Default) -> None:
            self._take_path(statement, choices)

        extra = {"schedule": schedule, "path": path, "tiles": block.read_tiles}
        block.numbers(statement.block, METHOD_NUMBERS, "", word, layer.default, extra)
        owner = f"{entry.name}.{word}"
        said = {name: replace(figure, owner=owner) for name, figure in block.figures.items()}
        self._figures = {**self._kept(statement.block), **said}
        self._tiles = block.tiles.get("tiles", self._tiles)

    def _kept(self, block: ast.Block) -> dict[str, NumberWithOrigin]:
        """Return the numbers that hold for a child with ``block`` if it does not state them itself."""
        heads = [head_of(statement) for statement in block.statements if isinstance(statement, ast.Say)]
        if all(head is None or head.text in ("source", *_OF_THE_NUMBERS) for head in heads):
            return self._figures
        return {name: figure for name, figure in self._figures.items() if name not in _OF_THE_NUMBERS}

    def _take_schedule(self, statement: ast.Say, entry: Entry, choices: ChoiceReader) -> None:
        """Read ``schedule shard_p2p(engine=dma(2))``."""
        group = statement.phrase[0]
        if len(statement.phrase) > 1 or len(group.parts) != 2:
            raise self._report.fail(Code.MGS116, "schedule says one template", statement.span, _EXAMPLE)
        self._spans["schedule"] = group.parts[1].span
        workload = ast.Path((entry.name,), span=statement.span)
        self._choice = choices.choice(ast.Template(entry.name, workload, group.parts[1:], span=statement.span))

    def _take_path(self, statement: ast.Say, choices: ChoiceReader) -> None:
        words = Words(statement.phrase, self._report)
        words.take("path")
        value = words.take("how bytes move")
        words.end()
        self._spans["path"] = value.span
        self._path = TransferPath(choices.word("path", value, tuple(path.value for path in TransferPath)))

    def _check(self, choice: Choice, path: TransferPath) -> None:
        """Report statements that contradict each other."""
        figures, at = self._figures, self._spans["path"]
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
        elif "rereads_below" in figures and not self._tiles:
            found = "rereads_below needs tiles", figures["rereads_below"].span, "tiles [[128, 256]]"
        elif "rows_per_read" in figures and "rereads_below" not in figures:
            found = "rows_per_read needs rereads_below", figures["rows_per_read"].span, "rereads_below 4096"
        elif "pieces" in figures and not BY_NAME[choice.template].cuts_shards:
            found = f"{choice.template} cuts no shards", figures["pieces"].span, "leave pieces out"
        elif "pieces" in figures and choice.chunks != BY_NAME[choice.template].default_pieces * self._system.num_ranks:
            found = f"pieces and {CHUNKS.word} say the same", figures["pieces"].span, "pieces of each shard"
        if found is not None:
            message, span, hint = found
            raise self._report.fail(Code.MGS314, message, span, hint)

    def _method(self, pattern: Pattern, choice: Choice, path: TransferPath, numbers: DeviceNumbers) -> Method:
        pieces = numbers.whole_if("pieces")
        if pieces is not None:
            choice = replace(choice, chunks=pieces * self._system.num_ranks)
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
            tiles=self._tiles,
            rereads_below=numbers.whole_if("rereads_below") or 0,
            rows_per_read=exact.get("rows_per_read", Fraction(1)),
            missing=tuple(name for name in needed if name not in exact),
            error=exact.get("error"),
            shortest_ticks=numbers.ticks_if("shortest") or 0,
        )
