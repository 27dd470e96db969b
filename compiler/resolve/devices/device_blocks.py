"""Read the block of a device, statement by statement: numbers, peaks, caches, tiles, collectives.

One statement of a block is ``calibrated ...``: the region of sizes to which the constants of a block were fitted.

Three blocks of a gpu may have it::

    gemm { calibrated bf16 m 1..32768, n 32..65536, k 32..65536 }
    sm_copy { calibrated 4..24 sms }
    collectives { calibrated 512 B..512 MiB on 2, 4, 8 gpus }

Ranges include both ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from ...codes import Code
from ...ir import TYPES_WITH_CONSTANTS, Calibrated, CollectiveRegion, DType, GemmRegion, Range
from ...text import syntax as ast
from ...text.diagnostics import Span
from ...text.units import BYTES, NUMBER
from ...text.vocabulary import (
    CACHE_NUMBERS,
    CACHES,
    COLLECTIVES,
    GPU_BLOCKS,
    GPU_NUMBERS,
    GPU_WORDS,
    LINK_CHOICES,
    LINK_LISTS,
    LINK_NUMBERS,
    MAX_EXTENT,
    MAX_RANKS,
    MAX_TILES,
    PEAK,
    STACK_CHOICES,
    STACK_NUMBERS,
    SWITCH_CHOICES,
    SWITCH_NUMBERS,
    TYPE_BLOCKS,
    Property,
)
from ..values.device_numbers import Default, NumberWithOrigin, default_of, figure, origin
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, known_head, reject_note

EXAMPLES: Mapping[str, str] = {
    "gemm": "calibrated bf16 m 1..32768, n 32..65536, k 32..65536",
    "sm_copy": "calibrated 4..24 sms",
    "collectives": "calibrated 512 B..512 MiB on 2, 4, 8 gpus",
}
"""The blocks that may have it, each with an example."""

# What the constants of a block depend on: an inherited region is derived if the child changes one of these.
INPUTS: Mapping[str, frozenset[str]] = {
    "gemm": frozenset({"sms", "clock", "peak", "l2", "hbm", "gemm"}),
    "sm_copy": frozenset({"sms", "clock", "sm_copy"}),
    "collectives": frozenset({"sms", "clock", "l2", "hbm", "collectives"}),
}

FittedRegion = GemmRegion | CollectiveRegion | Range
_EXTENT = Property("an extent", NUMBER, Fraction(1), Fraction(MAX_EXTENT), whole=True)
_SMS = Property("a number of SMs", NUMBER, Fraction(1), Fraction(4096), whole=True)
_BYTES = Property("a size", BYTES, Fraction(1), Fraction(1 << 50), whole=True)
_RANKS = Property("a number of gpus", NUMBER, Fraction(2), Fraction(MAX_RANKS), whole=True)


class CalibratedReader:
    """Reads the statement of one block of a gpu."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._report = reading, reading.report

    def read(self, block: str, statement: ast.Say) -> FittedRegion:
        """Return the region to which ``block`` was fitted; report a statement of another form."""
        if statement.block is not None:
            raise self._wrong(block, statement)
        words = behind(statement, self._report)
        match block:
            case "gemm":
                return self._gemm(statement)
            case "sm_copy":
                sms = self._range(words.take("a range of SMs"), _SMS, block, statement)
                if words.take_word("sms") is None:
                    raise self._wrong(block, statement)
                words.end(("sms",))
                return sms
            case _:
                return self._collectives(words, statement)

    def _gemm(self, statement: ast.Say) -> GemmRegion:
        """``bf16 m 1..32768, n ..., k ...``, each of m, n and k once and in this order."""
        for group in statement.phrase:
            reject_note(group, self._report)
        groups = [list(group.parts) for group in statement.phrase]
        dtype = groups[0][1] if len(groups[0]) > 1 else None
        groups[0] = groups[0][2:]
        names = [group[0].text if group and isinstance(group[0], ast.Name) else "" for group in groups]
        types = [each.value for each in DType]
        if not isinstance(dtype, ast.Name) or dtype.text not in types or names != ["m", "n", "k"]:
            raise self._wrong("gemm", statement)
        if any(len(group) != 2 for group in groups):
            raise self._wrong("gemm", statement)
        m, n, k = (self._range(group[1], _EXTENT, "gemm", statement) for group in groups)
        return GemmRegion(DType(dtype.text), m, n, k)

    def _collectives(self, words: Words, statement: ast.Say) -> CollectiveRegion:
        sizes = self._range(words.take("a range of sizes"), _BYTES, "collectives", statement)
        if words.take_word("on") is None:
            raise self._wrong("collectives", statement)
        counts = words.take_list("a number of gpus")
        if words.take_word("gpus") is None:
            raise self._wrong("collectives", statement)
        words.end(("gpus",))
        ranks = [int(self._reading.number(_RANKS, count).amount) for count in counts]
        return CollectiveRegion(sizes, tuple(sorted(set(ranks))))

    def _range(self, written: ast.Expression, wanted: Property, block: str, statement: ast.Say) -> Range:
        if not isinstance(written, ast.Range):
            raise self._wrong(block, statement)
        low, high = (int(self._reading.number(wanted, end).amount) for end in (written.low, written.high))
        if low > high:
            message = f"the range {written.span.text} is empty"
            raise self._report.fail(Code.MGS306, message, written.span, "the smaller end stands first")
        return low, high

    def _wrong(self, block: str, statement: ast.Say) -> Exception:
        message = f"calibrated says where the constants of {block} were fitted"
        return self._report.fail(Code.MGS116, message, statement.span, EXAMPLES[block])


def calibrated_of(regions: Mapping[str, FittedRegion], derived: frozenset[str]) -> Calibrated:
    """Return the regions of a gpu by block; ``derived`` are blocks whose region is that of another GPU."""
    gemm, copies, collectives = (regions.get(block) for block in ("gemm", "sm_copy", "collectives"))
    of_types = tuple(
        each for path, each in regions.items() if path.startswith("gemm.") and isinstance(each, GemmRegion)
    )
    assert gemm is None or isinstance(gemm, GemmRegion)
    assert copies is None or isinstance(copies, tuple)
    assert collectives is None or isinstance(collectives, CollectiveRegion)
    return Calibrated(gemm, copies, collectives, derived.intersection(regions), of_types)


Tiles = tuple[tuple[int, int], ...]
# The numbers of blocks without blocks in them, and their statements that say words.
_SIMPLE = {
    "link": (LINK_NUMBERS, (*LINK_LISTS, *LINK_CHOICES)),
    "switch": (SWITCH_NUMBERS, tuple(SWITCH_CHOICES)),
    "stack": (STACK_NUMBERS, tuple(STACK_CHOICES)),
}
_CHOICES = {**LINK_LISTS, **LINK_CHOICES, **SWITCH_CHOICES, **STACK_CHOICES}
_Extra = Mapping[str, Callable[[ast.Say, Default], None]]
_PER = Property("per", NUMBER, Fraction(1), Fraction(4096), whole=True)
_TILE = Property("a side of a tile", NUMBER, Fraction(1), Fraction(1 << 16), whole=True)


class BlockReader:
    """Reads the block of one device."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._report = reading, reading.report
        self.figures: dict[str, NumberWithOrigin] = {}
        self.tiles: dict[str, Tiles] = {}
        self.words: dict[str, tuple[str, ...]] = {}
        self.regions: dict[str, FittedRegion] = {}
        self._spans: dict[str, Span] = {}

    def gpu(self, block: ast.BlockNode, name: str) -> None:
        """Read the block of a gpu; the clock first, because cycles anywhere in it need it."""
        default = self._default(block, Default())
        for pass_words in (("clock",), tuple(word for word in GPU_WORDS if word != "clock")):
            for statement in block.statements:
                with self._report.attempt():
                    word = known_head(statement, GPU_WORDS, f"gpu {name}", self._report)
                    if word in pass_words and isinstance(statement, ast.Say):
                        self._gpu_statement(word, statement, default)
            if pass_words == ("clock",) and "clock" in self.figures:
                place = replace(self._reading.place, clock=self.figures["clock"].value.amount)
                self._reading = replace(self._reading, place=place)

    def simple(self, kind: str, block: ast.BlockNode, owner: str, default: Default) -> None:
        """Read the block of a link, a switch or a stack: its numbers, and the words that it takes."""
        numbers, words = _SIMPLE[kind]
        self.numbers(block, numbers, "", owner, default, dict.fromkeys(words, self._words))

    def _gpu_statement(self, word: str, statement: ast.Say, default: Default) -> None:
        if word == "source":
            return
        if word == "peak":
            self._peaks(statement, default)
        elif word == "cache":
            self._cache(statement, default)
        elif word == "collectives":
            parts: _Extra = {
                **dict.fromkeys(filter(None, COLLECTIVES), partial(self._part, word, COLLECTIVES)),
                **self._calibrated(word),
            }
            self.numbers(self._block_of(statement, word), COLLECTIVES[""], "collectives.", word, default, parts)
        elif word in GPU_BLOCKS:
            block = self._block_of(statement, word)
            extra: _Extra = {}
            if word in TYPE_BLOCKS:
                of_types = dict.fromkeys(TYPES_WITH_CONSTANTS, TYPE_BLOCKS[word])
                extra = dict.fromkeys(of_types, partial(self._part, word, of_types))
            if word == "gemm":
                extra = {**extra, "tiles": self.read_tiles, "pair_tiles": self.read_tiles}
            self.numbers(block, GPU_BLOCKS[word], f"{word}.", word, default, {**extra, **self._calibrated(word)})
        else:
            wanted = next(each for each in GPU_NUMBERS if each.name == word)
            self._number(wanted, statement, "", default)

    def numbers(
        self,
        block: ast.BlockNode,
        wanted: tuple[Property, ...],
        prefix: str,
        owner: str,
        default: Default,
        extra: _Extra | None = None,
    ) -> None:
        """Read the numbers of a block; ``extra`` reads statements that are not one number."""
        extra = extra or {}
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

    def _default(self, block: ast.BlockNode, before: Default) -> Default:
        for statement in block.statements:
            if isinstance(statement, ast.Say) and head_word(statement) == "source":
                with self._report.attempt():
                    return default_of(statement, self._report)
        return before

    def _number(self, wanted: Property, statement: ast.Say, prefix: str, default: Default) -> None:
        path = f"{prefix}{wanted.name}"
        self._once(path, statement.span)
        if len(statement.phrase) > 1 or statement.block is not None:
            raise self._report.fail(Code.MGS116, f"{wanted.name} is one number", statement.span)
        self.figures[path] = figure(self._reading, wanted, statement.phrase[0], 1, default)

    def _once(self, path: str, span: Span) -> None:
        if path in self._spans:
            line = self._spans[path].location.line
            raise self._report.fail(Code.MGS206, f"{path} is said twice", span, f"the first is on line {line}")
        self._spans[path] = span

    def _block_of(self, statement: ast.Say, word: str) -> ast.BlockNode:
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
                self.figures[f"peak.{dtype.value}"] = figure(self._reading, PEAK, group, skip + 1, default)

    def _dtype(self, part: ast.Expression | None, span: Span) -> DType:
        if isinstance(part, ast.Name) and part.text in [dtype.value for dtype in DType]:
            return DType(part.text)
        types = ", ".join(dtype.value for dtype in DType)
        raise self._report.fail(
            Code.MGS116, "peak says a type and a rate", span, f"peak bf16 989 TFLOP/s; types are {types}"
        )

    def _cache(self, statement: ast.Say, default: Default) -> None:
        match statement.phrase[0].parts[1:]:
            case (ast.Name(text=name),) if name in CACHES:
                extra: _Extra = {"per": self._per} if name == "l2" else {}
                block = self._block_of(statement, f"cache {name}")
                self.numbers(block, CACHE_NUMBERS, f"{CACHES[name]}.", f"cache {name}", default, extra)
            case _:
                message = f"the caches that are described are {' and '.join(CACHES)}"
                raise self._report.fail(Code.MGS116, message, statement.span, "cache l2 { ... }")

    def _per(self, statement: ast.Say, default: Default) -> None:
        """Read ``per 38 sms``."""
        group = statement.phrase[0]
        match group.parts[1:]:
            case (count, ast.Name(text="sms")):
                value = self._reading.number(_PER, count)
                noted = origin(group.note, default, self._report)
                self.figures["l2.per"] = NumberWithOrigin(value, noted.origin, noted.source, count.span)
            case _:
                raise self._report.fail(
                    Code.MGS116, "per says how many sms share a cache", statement.span, "per 38 sms"
                )

    def _part(
        self, owner: str, parts: Mapping[str, tuple[Property, ...]], statement: ast.Say, default: Default
    ) -> None:
        """Read a block inside ``collectives``, ``gemm`` or ``grouped``."""
        word = head_word(statement)
        block, path = self._block_of(statement, word), f"{owner}.{word}"
        extra = self._calibrated(owner, path) if owner in TYPE_BLOCKS else {}
        self.numbers(block, parts[word], f"{path}.", word, default, extra)

    def _calibrated(self, block: str, path: str = "") -> _Extra:
        """Return the reader of ``calibrated`` in ``block``, or in the one at ``path`` in it, if it may have it."""
        if block not in EXAMPLES:
            return {}

        def read(statement: ast.Say, default: Default) -> None:
            self.regions[path or block] = CalibratedReader(self._reading).read(block, statement)

        return {"calibrated": read}

    def _words(self, statement: ast.Say, default: Default) -> None:
        """Read ``protocols simple, ll`` or ``multicast yes``."""
        word = head_word(statement)
        several, known = word in LINK_LISTS, _CHOICES[word]
        groups = [group.parts[1 if idx == 0 else 0 :] for idx, group in enumerate(statement.phrase)]
        chosen = [parts[0].text for parts in groups if len(parts) == 1 and isinstance(parts[0], ast.Name)]
        whole = len(chosen) == len(groups) == len(set(chosen)) and (several or len(chosen) == 1)
        if not whole or not set(chosen) <= set(known):
            message = f"{word} is {'a list of' if several else 'one of'} {', '.join(known)}"
            raise self._report.fail(Code.MGS116, message, statement.span, f"{word} {known[0]}")
        self.words[word] = tuple(chosen)

    def read_sizes(self, statement: ast.Say, default: Default) -> None:
        """Read ``one_shot_below [[2, 8 MiB], [4, 512 KiB]]``: for each number of ranks the size that ends it."""
        self._pairs(statement, (_RANKS, _BYTES), "[[2, 8 MiB], [8, 256 KiB]]")

    def read_tiles(self, statement: ast.Say, default: Default) -> None:
        """Read ``tiles [[128, 128], [256, 256]]``, or ``pair_tiles``."""
        self._pairs(statement, (_TILE, _TILE), "[[128, 128], [256, 256]]")

    def _pairs(self, statement: ast.Say, wanted: tuple[Property, Property], example: str) -> None:
        word = head_word(statement)
        match statement.phrase[0].parts[1:]:
            case (ast.Listed(items=items),) if items and all(isinstance(item, ast.Listed) for item in items):
                if len(items) > MAX_TILES:
                    message = f"{len(items)} pairs, the limit is {MAX_TILES}"
                    raise self._report.fail(Code.MGS305, message, statement.span)
                self.tiles[word] = tuple(self._pair(item, wanted, example) for item in items)
            case _:
                raise self._report.fail(Code.MGS116, f"{word} is a list of pairs", statement.span, f"{word} {example}")

    def _pair(self, item: ast.Expression, wanted: tuple[Property, Property], example: str) -> tuple[int, int]:
        if not isinstance(item, ast.Listed) or len(item.items) != 2:
            names = f"{wanted[0].name} and {wanted[1].name}"
            raise self._report.fail(Code.MGS116, f"a pair is {names}", item.span, example)
        first, second = (
            int(self._reading.number(each, side).amount) for each, side in zip(wanted, item.items, strict=True)
        )
        return first, second
