"""Expectations: ``expect workload with M = 16 { mine.makespan < 900 us; verdict == serial }``."""

from dataclasses import dataclass, replace

from ...codes import Code
from ...text import syntax as ast
from ...text.units import NUMBER
from ..values.evaluate import Reading
from ..values.words import reject_note, side_by_side, single
from .expectation import (
    ON_OVERLAP,
    Bindings,
    Body,
    Check,
    CheckedSweep,
    Expectation,
    Shown,
    Somewhere,
    Verdict,
)
from .statements import EXAMPLE, SHAPES, ComparisonReader, ShapeReader, read_domain
from .terms import TermReader

MAX_SEEDS = 4096
SEEDS, SWEEP, SHOW, SOMEWHERE, PUBLISHED = "seeds", "sweep", "show", "somewhere", "published"
GRANULARITY = "granularity"
_PUBLISHED_EXAMPLE = 'speedup(mine, serial) > 1 published "up to 3.9x"'
_SWEEP_EXAMPLE = "for instance sweep M in 1024..65536 x2 { ... }"


@dataclass(frozen=True, slots=True)
class _Readers:
    """The readers of the statements of one block; ``shapes`` is None outside of a sweep."""

    terms: TermReader
    comparisons: ComparisonReader
    shapes: ShapeReader | None = None


class ExpectReader:
    """Reads the expectations about one workload, whose declared schedules are ``schedules``.

    ``ops`` are the names of several ops.

    ``verdicts`` are those that there may be on the workload; there are none ``of_step``, a training step.
    """

    def __init__(
        self,
        schedules: tuple[str, ...],
        reading: Reading,
        ops: tuple[str, ...] = (),
        verdicts: tuple[Verdict, ...] = ON_OVERLAP,
        *,
        of_step: bool = False,
    ) -> None:
        self._ops, self._verdicts, self._of_step = ops, verdicts, of_step
        self._schedules, self._reading, self._report = schedules, reading, reading.report

    def read(self, question: ast.Expect, workload: str) -> Expectation:
        """Return the expectations of one block."""
        bindings = self._bindings(question)
        seeds = self._seeds(question.block, 0)
        packets = self._packets(question.block)
        readers = self._readers(seeds)
        statements: list[Check | CheckedSweep] = []
        for statement in _without(question.block, SEEDS, GRANULARITY):
            with self._report.attempt():
                if isinstance(statement, ast.Say) and _starts_with(statement, SWEEP):
                    statements.append(self._sweep(statement, seeds, [name for name, _ in bindings]))
                else:
                    statements.append(self._check(statement, readers))
        return Expectation(workload, bindings, tuple(statements), seeds, packets)

    def _bindings(self, question: ast.Expect) -> Bindings:
        """Return the parameters that the head of a block sets."""
        bindings: dict[str, str] = {}
        for each in question.bindings:
            if each.name in bindings:
                self._report.error(Code.MGS206, f"{each.name} is set twice", each.span, "leave out one of them")
            bindings[each.name] = single(each.values, self._report).span.text
        return tuple(bindings.items())

    def _sweep(self, statement: ast.Say, seeds: int, bound: list[str]) -> CheckedSweep:
        param, domain, values, points = read_domain(statement, self._reading)
        if param.text in bound:
            message = f"{param.text} is set by 'with' and swept"
            raise self._report.fail(Code.MGS206, message, param.span, "leave out one of them")
        if statement.block is None:
            raise self._report.fail(Code.MGS116, "a sweep has a block", statement.span, _SWEEP_EXAMPLE)
        seeds = self._seeds(statement.block, seeds)
        unit, readers = values.low.dimension, self._readers(seeds)
        readers = replace(readers, shapes=ShapeReader(readers.terms, unit, len(points), self._reading))
        checks: list[Check] = []
        for each in _without(statement.block, SEEDS):
            with self._report.attempt():
                if _starts_with(each, SWEEP):
                    hint = "give the outer value in the head of a block: expect ... with N = 4096 { sweep M in ... }"
                    raise self._report.fail(Code.MGS327, "a sweep inside a sweep", each.span, hint)
                checks.append(self._check(each, readers))
        return CheckedSweep(param.text, domain, unit, points, tuple(checks), seeds)

    def _seeds(self, block: ast.BlockNode, inherited: int) -> int:
        """Return the number of seeds that a block asks for."""
        statements = [statement for statement in block.statements if _starts_with(statement, SEEDS)]
        if not statements:
            return inherited
        with self._report.attempt():
            self._not_of_step("seeds", statements[0])
            if len(statements) > 1:
                raise self._report.fail(Code.MGS206, "seeds are said twice", statements[1].span)
            match statements[0]:
                case ast.Define():
                    message = "'=' names a new thing, seeds is a word of Magus"
                    raise self._report.fail(Code.MGS202, message, statements[0].span, "drop the '=': seeds 64")
                case ast.Say(phrase=(ast.GroupNode(parts=(_, expression), note=None),), block=None):
                    return self._count(expression)
                case _:
                    raise self._report.fail(Code.MGS116, "seeds says how many", statements[0].span, "seeds 64")
        return 1

    def _packets(self, block: ast.BlockNode) -> bool:
        """Return whether a block asks for packets instead of lines."""
        statements = [each for each in block.statements if _starts_with(each, GRANULARITY)]
        if len(statements) > 1:
            self._report.error(Code.MGS206, "granularity is said twice", statements[1].span)
        for statement in statements[:1]:
            with self._report.attempt():
                self._not_of_step("granularity", statement)
            match statement:
                case ast.Say((ast.GroupNode((_, ast.Name("line" | "packet" as word)), note=None),), block=None):
                    return word == "packet"
                case _:
                    hint = "granularity packet, or granularity line"
                    self._report.error(Code.MGS116, "granularity is line or packet", statement.span, hint)
        return False

    def _not_of_step(self, what: str, statement: ast.Define | ast.Say) -> None:
        if self._of_step:
            hint = "a step has figures: mine.makespan, best.memory; say it about the workload of a layer"
            raise self._report.fail(Code.MGS573, f"a step has no {what}", statement.span, hint)

    def _count(self, expression: ast.Expression) -> int:
        value = self._reading.value(expression)
        if value.dimension != NUMBER or value.amount.denominator != 1 or not 1 <= value.amount <= MAX_SEEDS:
            raise self._report.fail(Code.MGS307, f"seeds are a whole number from 1 to {MAX_SEEDS:,}", expression.span)
        return int(value.amount)

    def _readers(self, seeds: int) -> _Readers:
        terms = TermReader(self._schedules, self._reading, seeds, self._ops, of_step=self._of_step)
        return _Readers(terms, ComparisonReader(terms, self._reading, self._verdicts))

    def _check(self, statement: ast.Define | ast.Say, readers: _Readers) -> Check:
        if isinstance(statement, ast.Define):
            hint = f"to compare, write ==: {statement.name} == ..."
            raise self._report.fail(
                Code.MGS202, "'=' names a new thing, expect holds comparisons", statement.span, hint
            )
        for group in statement.phrase:
            reject_note(group, self._report)
        if len(statement.phrase) > 1 or statement.block is not None:
            raise self._no_statement(statement)
        parts, published = self._published(statement.phrase[0].parts)
        if not parts:
            raise self._no_statement(statement)
        text = " ".join(parts[0].span.to(parts[-1].span).text.split())
        return Check(self._body(parts, statement, readers), text, statement.span, published)

    def _published(self, parts: tuple[ast.Expression, ...]) -> tuple[tuple[ast.Expression, ...], str]:
        """Split off ``published "text"`` at the end."""
        for at, part in enumerate(parts):
            if isinstance(part, ast.Name) and part.text == PUBLISHED:
                match parts[at + 1 :]:
                    case (ast.Text(value=text),) if text.strip():
                        return parts[:at], text
                    case _:
                        message = "published says what was published, and ends the statement"
                        raise self._report.fail(Code.MGS116, message, part.span, _PUBLISHED_EXAMPLE)
        return parts, ""

    def _body(self, parts: tuple[ast.Expression, ...], statement: ast.Say, readers: _Readers) -> Body:
        match parts:
            case (ast.Compare(left=ast.Name(text="verdict")) as compare,):
                self._not_of_step("verdict", statement)
                return self._verdict(compare, readers)
            case (ast.Compare(left=ast.Call(function=ast.Name(text="crossover")) as call) as compare,):
                return self._shapes(statement, readers).crossover(compare, call)
            case (ast.Compare() as compare,):
                return readers.comparisons.read(compare)
            case (ast.Name(text="show"), term):
                return Shown(readers.terms.about_schedule(term, "show speedup(mine, serial)"))
            case (ast.Name(text="somewhere"), ast.Compare() as compare):
                self._shapes(statement, readers)
                return Somewhere(readers.comparisons.read(compare))
            case (ast.Compare(right=right), extra, *_):
                side_by_side(right, extra, self._report)
                raise self._report.stop()
            case (_, ast.Name(text=word), *_) | (_, ast.Spread(value=ast.Name(text=word)), *_) if (
                readers.shapes is not None or word in SHAPES
            ):
                shape = self._shapes(statement, readers).shape(parts)
                if shape is not None:
                    return shape
        raise self._no_statement(statement)

    def _verdict(self, compare: ast.Compare, readers: _Readers) -> Body:
        if readers.terms.under_seeds:
            hint = "compare schedules under seeds: p95(mine.makespan) < p95(serial.makespan)"
            raise self._report.fail(Code.MGS331, "the verdict is not about seeds", compare.span, hint)
        return readers.comparisons.verdict(compare)

    def _shapes(self, statement: ast.Say, readers: _Readers) -> ShapeReader:
        if readers.shapes is None:
            raise self._report.fail(Code.MGS330, "this compares the points of a sweep", statement.span, _SWEEP_EXAMPLE)
        return readers.shapes

    def _no_statement(self, statement: ast.Say) -> Exception:
        return self._report.fail(Code.MGS116, "expect holds comparisons", statement.span, f"for instance {EXAMPLE}")


def _starts_with(statement: ast.Define | ast.Say, word: str) -> bool:
    if isinstance(statement, ast.Define):
        return statement.name == word
    first = statement.phrase[0].parts[0]
    return isinstance(first, ast.Name) and first.text == word


def _without(block: ast.BlockNode, *words: str) -> list[ast.Define | ast.Say]:
    """Return the statements of a block that begin with none of ``words``."""
    return [each for each in block.statements if not any(_starts_with(each, word) for word in words)]
