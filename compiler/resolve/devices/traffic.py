"""Read ``traffic { ... }`` of a system: writes of other programs into the memory of its GPUs."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from ...codes import Code
from ...ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    BackgroundTraffic,
    BackgroundWrite,
    Distribution,
    Shape,
    System,
    WriteStream,
    network_of,
)
from ...text import syntax as ast
from ...text.diagnostics import Report, Span
from ...text.load import path_beside, read_source
from ...text.names import Scope
from ...text.units import BYTES, NUMBER, TIME, exact, rate_text
from ...text.vocabulary import TRAFFIC_WORDS, Property
from ..values.device_numbers import FigureReader
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import Words, known_head
from .variability import COUNT, MAX_BYTES, TIME_US, read_distribution, rows_below

HEADER = "time_us,from,to,bytes"
_ROW = "for instance: 12.5,3,0,262144"
_EXAMPLE = "rank 1..7 writes 64 KiB every exponential(2 us) to 0"
_SHAPES = (Shape.CONSTANT, Shape.UNIFORM, Shape.EXPONENTIAL)
_LONGEST, _SHORTEST = Fraction(1, 10), Fraction(1, 10**8)
"""Seconds of an interval: at most 100 ms, at the mean at least 10 ns."""
_MAX_AT_ONCE = Fraction(4096)


class TrafficReader:
    """Reads the block of one system with ``num_ranks`` GPUs."""

    def __init__(self, report: Report, evaluator: ExpressionEvaluator, scope: Scope, num_ranks: int) -> None:
        self._report, self._num_ranks, self._place = report, num_ranks, Place(scope)
        self._reader = FigureReader(report, evaluator)

    def read(self, statement: ast.Say) -> BackgroundTraffic:
        """Read the block; errors are reported statement by statement."""
        if statement.block is None or len(statement.phrase[0].parts) > 1:
            raise self._report.fail(
                Code.MGS116,
                "traffic has a block and no values",
                statement.span,
                f"for instance: traffic {{ {_EXAMPLE} }}",
            )
        streams: list[WriteStream] = []
        writes: list[BackgroundWrite] = []
        for inner in statement.block.statements:
            with self._report.attempt():
                word = known_head(inner, TRAFFIC_WORDS, "traffic", self._report)
                assert isinstance(inner, ast.Say)
                if word == "file":
                    writes += self._file(inner)
                else:
                    streams.append(self._stream(inner))
        return BackgroundTraffic(tuple(streams), tuple(sorted(writes, key=lambda write: write.ticks)))

    def _stream(self, statement: ast.Say) -> WriteStream:
        words = Words(statement.phrase, self._report)
        words.take("rank")
        ranks = self._ranks(words.take("the number of a rank"))
        self._word(words, "writes", "a stream of traffic says what it writes")
        count, first = 1, words.take("a size")
        if words.take_word("x"):
            wanted = Property("the number of writes at once", NUMBER, Fraction(1), _MAX_AT_ONCE, whole=True)
            count, first = int(self._reader.value(wanted, (first,), self._place).amount), words.take("a size")
        wanted = Property("the size of a write", BYTES, Fraction(1), Fraction(MAX_BYTES), whole=True)
        num_bytes = int(self._reader.value(wanted, (first,), self._place).amount)
        self._word(words, "every", "a stream of traffic says how often it writes")
        interval = self._interval(words.take("a time or a distribution"))
        self._word(words, "to", "a stream of traffic says which rank it writes to")
        to = words.take("the number of a rank")
        words.end()
        target = self._rank(to)
        if target in ranks:
            message = f"rank {target} writes to itself, and traffic comes from other ranks"
            raise self._report.fail(Code.MGS307, message, to.span, f"for instance: {_EXAMPLE}")
        return WriteStream(ranks, target, count, num_bytes, interval)

    def _word(self, words: Words, word: str, otherwise: str) -> None:
        if not words.take_word(word):
            raise self._report.fail(Code.MGS116, otherwise, words.span, f"write: {_EXAMPLE}")

    def _ranks(self, value: ast.Expression) -> tuple[int, ...]:
        if not isinstance(value, ast.Range):
            return (self._rank(value),)
        low, high = self._rank(value.low), self._rank(value.high)
        if low > high:
            raise self._report.fail(Code.MGS306, "the low end is above the high end", value.span)
        return tuple(range(low, high + 1))

    def _rank(self, value: ast.Expression) -> int:
        wanted = Property("rank", NUMBER, Fraction(0), Fraction(self._num_ranks - 1), whole=True)
        return int(self._reader.value(wanted, (value,), self._place).amount)

    def _interval(self, value: ast.Expression) -> Distribution:
        if not isinstance(value, ast.Call):
            return Distribution(Shape.CONSTANT, (self._time("the interval", Shape.CONSTANT, value),))
        read = read_distribution(value, "the interval", _EXAMPLE, self._time, self._report, _SHAPES)
        if sum(read.arguments) < _SHORTEST * TICKS_PER_SECOND * len(read.arguments):
            raise self._report.fail(Code.MGS307, "the mean of an interval is at least 10 ns", value.span)
        return read

    def _time(self, name: str, shape: Shape, value: ast.Expression) -> Fraction:
        """Read a time in ticks; only a uniform interval may begin at 0."""
        low = Fraction(0) if shape is Shape.UNIFORM else _SHORTEST
        return self._reader.value(Property(name, TIME, low, _LONGEST), (value,), self._place).amount * TICKS_PER_SECOND

    def _file(self, statement: ast.Say) -> Iterator[BackgroundWrite]:
        words = Words(statement.phrase, self._report)
        words.take("file")
        text = words.take("the path of a table")
        words.end()
        if not isinstance(text, ast.Text):
            raise self._report.fail(Code.MGS116, "file names a table", text.span, 'for instance: file "neighbour.csv"')
        source = read_source(path_beside(text, "table", self._report), self._report, text.span)
        for row, span in rows_below(source, HEADER, self._report):
            with self._report.attempt():
                yield self._write(row, span)

    def _write(self, row: str, span: Span) -> BackgroundWrite:
        fields = [field.strip() for field in row.split(",")]
        if len(fields) != 4 or not TIME_US.fullmatch(fields[0]) or not all(map(COUNT.fullmatch, fields[1:])):
            message = "a row is a time in us with at most eight decimals, two ranks and bytes, from 0 up"
            raise self._report.fail(Code.MGS136, message, span, _ROW)
        rank, target, num_bytes = map(int, fields[1:])
        if max(rank, target) >= self._num_ranks or rank == target:
            message = f"a write goes from one rank below {self._num_ranks} to another, not from {rank} to {target}"
            raise self._report.fail(Code.MGS307, message, span)
        if not 1 <= num_bytes <= MAX_BYTES:
            raise self._report.fail(Code.MGS307, f"bytes are from 1 to {MAX_BYTES}, got {num_bytes}", span)
        return BackgroundWrite(int(exact(fields[0]) * TICKS_PER_US), rank, target, num_bytes)


def check_rates(system: System, statement: ast.Say, report: Report) -> None:
    """Refuse streams that bring more to a link than it carries: what waits there would wait for ever."""
    if system.traffic is None:
        return
    network = network_of(system.fabric, system.num_ranks)
    loads = defaultdict[tuple[int, int], float](float)  # bytes a second, by the ends of a link
    for stream in system.traffic.streams:
        rate = float(stream.count * stream.num_bytes * TICKS_PER_SECOND / stream.mean_ticks)
        for rank in stream.ranks:
            for edge in network.route(rank, stream.target):
                loads[edge.ends] += rate
    for ends, load in loads.items():
        edge = network.edge(*ends)
        if load >= edge.bytes_per_s:
            message = (
                f"traffic brings {rate_text(load)} to link '{edge.name}', which carries {rate_text(edge.bytes_per_s)}"
            )
            raise report.fail(Code.MGS307, message, statement.span, "say smaller or rarer writes")
