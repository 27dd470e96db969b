"""Records of protobuf in a file, each behind its length, and their fields: the wire format, without a schema.

Files are not trusted: a record and their number are limited. https://protobuf.dev/programming-guides/encoding
"""

from collections.abc import Iterator

from .chrome import TraceError

MAX_RECORD = 16 << 20
MAX_RECORDS = 20_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10

Field = tuple[int, int | bytes]
"""A number of the schema with a whole number, or with the bytes of a text, a message or a number of fixed length."""


def records(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield each record.

    Raises
    ------
    TraceError
        If the data end within a record, or one is too long.
    """
    data, at = b"", 0
    for _ in range(MAX_RECORDS):
        data, at = _filled(data, at, _VARINT_BYTES, pieces), 0
        if not data:
            return
        size, start = _varint(data, 0)
        if size > MAX_RECORD:
            raise TraceError("a record is too long")
        data = _filled(data, start, size, pieces)
        if len(data) < size:
            raise TraceError("it ends within a record")
        yield data[:size]
        at = size
    raise TraceError(f"it has more than {MAX_RECORDS:,} records")


def fields(record: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order.

    Raises
    ------
    TraceError
        If it is no message.
    """
    at = 0
    while at < len(record):
        key, at = _varint(record, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(record, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(record, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise TraceError("no message of protobuf")
        if number == 0 or at + size > len(record):
            raise TraceError("no message of protobuf")
        yield number, record[at : at + size]
        at += size


def packed_numbers(packed: bytes) -> Iterator[int]:
    """Yield the whole numbers of a field that repeats them.

    Raises
    ------
    TraceError
        If they are none.
    """
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _filled(data: bytes, at: int, size: int, pieces: Iterator[bytes]) -> bytes:
    """The rest of ``data`` from ``at`` on, with as many pieces more as ``size`` bytes take, if there are so many."""
    parts, found = [data[at:]], len(data) - at
    while found < size and (piece := next(pieces, b"")):
        parts.append(piece)
        found += len(piece)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise TraceError("no message of protobuf")
