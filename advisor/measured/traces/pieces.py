"""What a trace holds, in pieces, plain or gzipped, and what tells one of torch.profiler from other files."""

import codecs
import zlib
from collections.abc import Iterator
from pathlib import Path

HEAD = 4096
"""Characters that tell a trace."""
PIECE = 1 << 18
PACKED_PIECE = 1 << 12
"""Packed bytes that are lost with the damage that is in them."""
_MEMBERS = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"')
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31


def is_trace(head: str) -> bool:
    """Whether a text that begins with ``head`` is a trace."""
    return head.lstrip("\ufeff \t\r\n").startswith("{") and any(member in head for member in _MEMBERS)


def byte_pieces(path: Path) -> Iterator[bytes]:
    """Yield what a file holds.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as stream:
        yield from iter(lambda: stream.read(PIECE), b"")


def text_pieces(path: Path) -> Iterator[str]:
    """Yield the text of a file; one that is packed and damaged ends where the damage begins.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with path.open("rb") as stream:
        packed = stream.read(len(_GZIP)) == _GZIP
        stream.seek(0)
        if packed:
            yield from map(decode, _unpacked(iter(lambda: stream.read(PACKED_PIECE), b"")))
        else:
            yield from map(decode, iter(lambda: stream.read(PIECE), b""))


def _unpacked(data: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_BITS)
    for piece in data:
        rest = piece
        while rest:
            try:
                unpacked = unpacker.decompress(rest, PIECE)
            except zlib.error:
                return
            yield unpacked
            rest = unpacker.unconsumed_tail
            if unpacker.eof:  # another member may follow
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP_BITS)
