"""``calibrated ...``: the region of sizes to which the constants of a block were fitted.

Three blocks of a gpu may have it::

    gemm { calibrated bf16 m 1..32768, n 32..65536, k 32..65536 }
    sm_copy { calibrated 4..24 sms }
    collectives { calibrated 512 B..512 MiB on 2, 4, 8 gpus }

Ranges include both ends.
"""

from collections.abc import Mapping
from fractions import Fraction

from ...codes import Code
from ...ir import Calibrated, CollectiveRegion, DType, GemmRegion, Range
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.units import BYTES, NUMBER
from ...text.vocabulary import MAX_EXTENT, MAX_RANKS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import Place
from ..values.sentences import Words, reject_note

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

    def __init__(self, report: Report, reader: FigureReader, place: Place) -> None:
        self._report, self._reader, self._place = report, reader, place

    def read(self, block: str, statement: ast.Say) -> FittedRegion:
        """Return the region to which ``block`` was fitted; report a statement of another form."""
        if statement.block is not None:
            raise self._wrong(block, statement)
        words = Words(statement.phrase, self._report)
        words.take("calibrated")
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
        ranks = [int(self._reader.value(_RANKS, (count,), self._place).amount) for count in counts]
        return CollectiveRegion(sizes, tuple(sorted(set(ranks))))

    def _range(self, written: ast.Expression, wanted: Property, block: str, statement: ast.Say) -> Range:
        if not isinstance(written, ast.Range):
            raise self._wrong(block, statement)
        low, high = (int(self._reader.value(wanted, (end,), self._place).amount) for end in (written.low, written.high))
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
    assert gemm is None or isinstance(gemm, GemmRegion)
    assert copies is None or isinstance(copies, tuple)
    assert collectives is None or isinstance(collectives, CollectiveRegion)
    return Calibrated(gemm, copies, collectives, derived.intersection(regions))
