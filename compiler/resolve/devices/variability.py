"""Read ``variability { ... }`` of a system: the distributions of times that differ between equal GPUs."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from ...codes import Code
from ...ir import (
    TICKS_PER_SECOND,
    TICKS_PER_US,
    BackgroundTraffic,
    BackgroundWrite,
    Distribution,
    Late,
    Replay,
    Shape,
    Straggler,
    System,
    Variability,
    Write,
    WriteStream,
    network_of,
)
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, Span, listing
from ...text.load import path_beside, read_source
from ...text.units import BYTES, NUMBER, TIME, exact, rate_text, round_half_up
from ...text.vocabulary import TRAFFIC_WORDS, VARIABILITY_WORDS, Property
from ..values.evaluate import Reading
from ..values.words import behind, head_word, one_of, said_in, single

_ARGUMENTS: Mapping[Shape, tuple[str, ...]] = {
    Shape.CONSTANT: ("value",),
    Shape.UNIFORM: ("low", "high"),
    Shape.NORMAL: ("standard deviation",),
    Shape.EXPONENTIAL: ("mean",),
}
_EXAMPLES = {
    "skew": "skew uniform(0 us, 5 us)",
    "jitter": "jitter normal(2 %)",
    "straggler": "straggler 5 % x1.3",
    "late": "late rank 1 by 20 us",
}
_MAX_DELAY = Fraction(1, 10)
"""Seconds that a start may be delayed by at most."""
_MAX_JITTER = Fraction(20, 100)
"""Largest standard deviation or mean of jitter: at four deviations below, a kernel still takes a fifth of its time."""
_MAX_FACTOR = Fraction(100)
_FACTOR = re.compile(r"x([0-9]+(\.[0-9]+)?)")


class VariabilityReader:
    """Reads the block of one system with ``num_ranks`` GPUs."""

    def __init__(self, reading: Reading, num_ranks: int) -> None:
        self._reading, self._report, self._num_ranks = reading, reading.report, num_ranks

    def read(self, statement: ast.Say) -> Variability:
        """Read the block; errors are reported statement by statement."""
        block = _block_of(statement, f"variability {{ {_EXAMPLES['skew']} }}", self._report)
        distributions: dict[str, Distribution] = {}
        straggler: Straggler | None = None
        late: list[Late] = []
        for word, inner in said_in(block, VARIABILITY_WORDS, "variability", self._report, ("late",)):
            with self._report.attempt():
                if word == "late":
                    late.append(self._late(inner, late))
                elif word == "straggler":
                    straggler = self._straggler(inner)
                else:
                    distributions[word] = self._distribution(inner, word)
        return Variability(distributions.get("skew"), distributions.get("jitter"), straggler, tuple(late))

    def _distribution(self, statement: ast.Say, word: str) -> Distribution:
        call = behind(statement, self._report).only("a distribution")
        if not isinstance(call, ast.Call):
            hint = f"for instance: {_EXAMPLES[word]}"
            raise self._report.fail(Code.MGS116, f"{word} has a distribution", call.span, hint)
        of = self._time if word == "skew" else self._share
        return read_distribution(call, word, _EXAMPLES[word], of, self._report)

    def _time(self, name: str, shape: Shape, value: ast.Expression) -> Fraction:
        """Read a time from 0 up, in ticks."""
        return self._reading.number(Property(name, TIME, Fraction(0), _MAX_DELAY), value).amount * TICKS_PER_SECOND

    def _share(self, name: str, shape: Shape, value: ast.Expression) -> Fraction:
        """Read a relative deviation; a constant or uniform one may be negative and shorten kernels."""
        bounded = shape in (Shape.NORMAL, Shape.EXPONENTIAL)
        low, high = (Fraction(0), _MAX_JITTER) if bounded else (Fraction(-9, 10), Fraction(10))
        return self._reading.number(Property(name, NUMBER, low, high), value).amount

    def _straggler(self, statement: ast.Say) -> Straggler:
        words = behind(statement, self._report)
        share, factor = words.take("a share of the ranks"), words.only("a factor")
        wanted = Property("the share of stragglers", NUMBER, Fraction(0), Fraction(1))
        amount = self._reading.number(wanted, share).amount
        match = _FACTOR.fullmatch(factor.text) if isinstance(factor, ast.Name) else None
        if match is None or not 1 <= exact(match[1]) <= _MAX_FACTOR:
            hint = f"for instance: {_EXAMPLES['straggler']}"
            raise self._report.fail(Code.MGS116, f"a straggler is slower by x1 to x{_MAX_FACTOR}", factor.span, hint)
        return Straggler(amount, exact(match[1]))

    def _late(self, statement: ast.Say, others: Sequence[Late]) -> Late:
        words, hint = behind(statement, self._report), f"write: {_EXAMPLES['late']}"
        words.need("rank", "late says which rank", hint)
        rank = words.take("the number of a rank")
        words.need("by", "late says by how much", hint)
        delay = words.only("a time")
        late_rank = self._reading.count("rank", 0, self._num_ranks - 1, rank)
        if any(late_rank == other.rank for other in others):
            raise self._report.fail(Code.MGS206, f"late is said twice of rank {late_rank}", statement.span)
        return Late(late_rank, round_half_up(self._time("the delay", Shape.CONSTANT, delay)))


def _block_of(statement: ast.Say, example: str, report: Report) -> ast.BlockNode:
    if statement.block is None or len(statement.phrase[0].parts) > 1:
        message = f"{head_word(statement)} has a block and no values"
        raise report.fail(Code.MGS116, message, statement.span, f"for instance: {example}")
    return statement.block


def read_distribution(
    call: ast.Call,
    word: str,
    example: str,
    value_of: Callable[[str, Shape, ast.Expression], Fraction],
    report: Report,
    known: Iterable[Shape] = Shape,
) -> Distribution:
    """Read the distribution of ``word``: one of the shapes that are ``known``, each argument by ``value_of``."""
    shapes = {shape.value: shape for shape in known}
    if not isinstance(call.function, ast.Name):
        raise report.fail(Code.MGS116, f"{word} has a distribution", call.span, f"for instance: {example}")
    shape = shapes[one_of(shapes, call.function, "distribution", report, f"distributions are {listing(shapes)}")]
    names = _ARGUMENTS[shape]
    if len(call.arguments) != len(names) or any(argument.name for argument in call.arguments):
        message = f"{shape.value} takes {' and '.join(names)}"
        raise report.fail(Code.MGS116, message, call.span, f"for instance: {example}")
    values = [single(argument.values, report, in_call=True) for argument in call.arguments]
    amounts = tuple(value_of(f"the {name} of {word}", shape, value) for name, value in zip(names, values, strict=True))
    if shape is Shape.UNIFORM and amounts[0] > amounts[1]:
        raise report.fail(Code.MGS306, "the low end is above the high end", call.span)
    return Distribution(shape, amounts)


HEADER = "time_us,rank,signal,bytes"
_EXAMPLE = "for instance: 12.5,3,x1,262144"
TIME_US = re.compile(r"[0-9]{1,9}(\.[0-9]{1,8})?")
COUNT = re.compile(r"[0-9]{1,15}")
_SIGNAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
MAX_BYTES = 1 << 40
"""Bytes of one write."""


def read_replay(text: ast.Text, num_ranks: int, report: Report) -> Replay:
    """Read the profile at the path ``text``, in the folder of the file that names it or below."""
    source = read_source(path_beside(text, "profile", report), report, text.span)
    with report.whole():
        writes = tuple(_writes(source, num_ranks, report))
    return Replay(text.value, writes)


def write_profile(writes: Iterable[Write]) -> str:
    """Write a profile with exact times."""
    rows = [f"{_us(write.ticks)},{write.rank},{write.signal},{write.num_bytes}" for write in writes]
    return "\n".join([HEADER, *rows, ""])


def _us(ticks: int) -> str:
    whole, rest = divmod(ticks, TICKS_PER_US)
    return f"{whole}.{rest:08d}"


def _writes(source: Source, num_ranks: int, report: Report) -> Iterator[Write]:
    before, writers = 0, dict[str, int]()
    for row, span in rows_below(source, HEADER, report, "a profile"):
        with report.attempt():
            write = _write(row, span, num_ranks, report)
            writer = writers.setdefault(write.signal, write.rank)
            if writer != write.rank:
                message = f"signal {write.signal} is set by rank {writer} and by rank {write.rank}"
                raise report.fail(Code.MGS136, message, span, "a signal has one writer")
            if write.ticks < before:
                message = "this write is earlier than the one before it"
                raise report.fail(Code.MGS136, message, span, "sort the rows by time")
            before = write.ticks
            yield write


def rows_below(source: Source, header: str, report: Report, what: str, hint: str = "") -> list[tuple[str, Span]]:
    """Return the rows of a table of comma-separated values below its ``header``, each with its span.

    ``what`` is the table and ``hint`` how else it may begin, for people.
    """
    rows = list(_rows(source))
    if not rows or rows[0][0].replace(" ", "") != header:
        span = rows[0][1] if rows else Span(source, 0, 0)
        raise report.fail(Code.MGS136, f"{what} begins with the line {header}", span, hint)
    return rows[1:]


def _rows(source: Source) -> Iterator[tuple[str, Span]]:
    """Return the lines that are neither empty nor comments, each with its span."""
    at = 0
    for line in source.text.split("\n"):
        row = line.partition("#")[0].strip()
        if row:
            start = at + line.index(row)
            yield row, Span(source, start, start + len(row))
        at += len(line) + 1


def _write(row: str, span: Span, num_ranks: int, report: Report) -> Write:
    fields = [field.strip() for field in row.split(",")]
    if len(fields) != 4:
        raise report.fail(Code.MGS136, f"a row has four fields, got {len(fields)}", span, _EXAMPLE)
    time, rank, signal, size = fields
    if not TIME_US.fullmatch(time):
        message = "a time is in us, from 0 up, with at most eight decimals"
        raise report.fail(Code.MGS136, message, span, _EXAMPLE)
    if not COUNT.fullmatch(rank) or not COUNT.fullmatch(size) or not _SIGNAL.fullmatch(signal):
        message = "a rank and bytes are whole numbers, a signal is a name"
        raise report.fail(Code.MGS136, message, span, _EXAMPLE)
    if not 1 <= int(rank) < num_ranks:
        message = f"rank is from 1 to {num_ranks - 1}, got {rank}: rank 0 is the one that is simulated"
        raise report.fail(Code.MGS307, message, span)
    if int(size) > MAX_BYTES:
        raise report.fail(Code.MGS307, f"bytes are at most {MAX_BYTES}, got {size}", span, "0 bytes are a flag")
    return Write(int(exact(time) * TICKS_PER_US), int(rank), signal, int(size))


# Read ``traffic { ... }`` of a system: writes of other programs into the memory of its GPUs.

TRAFFIC_HEADER = "time_us,from,to,bytes"
_ROW = "for instance: 12.5,3,0,262144"
_TRAFFIC_EXAMPLE = "rank 1..7 writes 64 KiB every exponential(2 us) to 0"
_SHAPES = (Shape.CONSTANT, Shape.UNIFORM, Shape.EXPONENTIAL)
_LONGEST, _SHORTEST = Fraction(1, 10), Fraction(1, 10**8)
"""Seconds of an interval: at most 100 ms, at the mean at least 10 ns."""
_MAX_AT_ONCE = 4096


class TrafficReader:
    """Reads the block of one system with ``num_ranks`` GPUs."""

    def __init__(self, reading: Reading, num_ranks: int) -> None:
        self._reading, self._report, self._num_ranks = reading, reading.report, num_ranks

    def read(self, statement: ast.Say) -> BackgroundTraffic:
        """Read the block; errors are reported statement by statement."""
        block = _block_of(statement, f"traffic {{ {_TRAFFIC_EXAMPLE} }}", self._report)
        streams: list[WriteStream] = []
        writes: list[BackgroundWrite] = []
        for word, inner in said_in(block, TRAFFIC_WORDS, "traffic", self._report, TRAFFIC_WORDS):
            with self._report.attempt():
                if word == "file":
                    writes += self._file(inner)
                else:
                    streams.append(self._stream(inner))
        return BackgroundTraffic(tuple(streams), tuple(sorted(writes, key=lambda write: write.ticks)))

    def _stream(self, statement: ast.Say) -> WriteStream:
        words, hint = behind(statement, self._report), f"write: {_TRAFFIC_EXAMPLE}"
        ranks = self._ranks(words.take("the number of a rank"))
        words.need("writes", "a stream of traffic says what it writes", hint)
        count, first = 1, words.take("a size")
        if words.take_word("x"):
            count = self._reading.count("the number of writes at once", 1, _MAX_AT_ONCE, first)
            first = words.take("a size")
        wanted = Property("the size of a write", BYTES, Fraction(1), Fraction(MAX_BYTES), whole=True)
        num_bytes = int(self._reading.number(wanted, first).amount)
        words.need("every", "a stream of traffic says how often it writes", hint)
        interval = self._interval(words.take("a time or a distribution"))
        words.need("to", "a stream of traffic says which rank it writes to", hint)
        to = words.only("the number of a rank")
        target = self._rank(to)
        if target in ranks:
            message = f"rank {target} writes to itself, and traffic comes from other ranks"
            raise self._report.fail(Code.MGS307, message, to.span, f"for instance: {_TRAFFIC_EXAMPLE}")
        return WriteStream(ranks, target, count, num_bytes, interval)

    def _ranks(self, value: ast.Expression) -> tuple[int, ...]:
        if not isinstance(value, ast.Range):
            return (self._rank(value),)
        low, high = self._rank(value.low), self._rank(value.high)
        if low > high:
            raise self._report.fail(Code.MGS306, "the low end is above the high end", value.span)
        return tuple(range(low, high + 1))

    def _rank(self, value: ast.Expression) -> int:
        return self._reading.count("rank", 0, self._num_ranks - 1, value)

    def _interval(self, value: ast.Expression) -> Distribution:
        if not isinstance(value, ast.Call):
            return Distribution(Shape.CONSTANT, (self._time("the interval", Shape.CONSTANT, value),))
        read = read_distribution(value, "the interval", _TRAFFIC_EXAMPLE, self._time, self._report, _SHAPES)
        if sum(read.arguments) < _SHORTEST * TICKS_PER_SECOND * len(read.arguments):
            raise self._report.fail(Code.MGS307, "the mean of an interval is at least 10 ns", value.span)
        return read

    def _time(self, name: str, shape: Shape, value: ast.Expression) -> Fraction:
        """Read a time in ticks; only a uniform interval may begin at 0."""
        low = Fraction(0) if shape is Shape.UNIFORM else _SHORTEST
        return self._reading.number(Property(name, TIME, low, _LONGEST), value).amount * TICKS_PER_SECOND

    def _file(self, statement: ast.Say) -> Iterator[BackgroundWrite]:
        text = behind(statement, self._report).only("the path of a table")
        if not isinstance(text, ast.Text):
            raise self._report.fail(Code.MGS116, "file names a table", text.span, 'for instance: file "neighbour.csv"')
        source = read_source(path_beside(text, "table", self._report), self._report, text.span)
        if next((row.replace(" ", "") for row, _ in _rows(source)), "") == HEADER:
            for each in _writes(source, self._num_ranks, self._report):  # to rank 0; flags move nothing
                if each.num_bytes:
                    yield BackgroundWrite(each.ticks, each.rank, 0, each.num_bytes)
            return
        hint = f"or with {HEADER}, as a recorded profile does"
        for row, span in rows_below(source, TRAFFIC_HEADER, self._report, "a table of traffic", hint):
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
