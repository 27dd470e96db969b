"""A folder of entries, each in a file of its own: bounded, and safe under other processes and their sudden ends.

A file is written under another name and renamed, so that a reader finds all of an entry or nothing. It begins with a
checksum of its key and its data: what is cut off, altered or from elsewhere is no entry. Entries lie in 256 folders by
the begin of their keys, which are hashes. Each folder is kept within its share of the bound, so that no process needs
to know the whole; the entries that were used longest ago go first.

Who computes an entry may say so (``alone``): another process that wants it waits, and finds it.

Nothing here fails: an entry that cannot be read is missing, and one that cannot be written is left out.
"""

import logging
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from platformdirs import user_cache_path

from ...compiler.text.writing import locked, replace_whole

ENVIRONMENT_VARIABLE = "MAGUS_CACHE_DIR"
"""Name of the folder in place of the user's cache folder."""

MAX_BYTES = 256 << 20
NUM_FOLDERS = 256
CHECKSUM_BYTES = 32
UNDER_WAY, LOCK_DIGITS = "under_way", 3
"""The folder of the locks of entries that are computed, and the first digits of a key that name one of them."""

MAX_UNPACKED = 64
"""Largest ratio of an entry to the share of its folder: JSON of simulations is packed some tenfold."""

_OWN_NAME = re.compile(r"[0-9a-f]{64}(\.\w+)?")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Store:
    """Entries in ``folder``, up to ``max_bytes`` in all; keys are 64 hexadecimal digits."""

    folder: Path
    max_bytes: int = MAX_BYTES

    @property
    def _share(self) -> int:
        """Bytes of one of the folders."""
        return self.max_bytes // NUM_FOLDERS

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def read(self, key: str) -> bytes | None:
        """Return the data of an entry, None if there is no sound one."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                sealed = file.read(self._share + 1)
        except OSError:
            return None
        data = _opened(key, sealed, MAX_UNPACKED * self._share)
        if data is not None:
            with suppress(OSError):
                os.utime(path)  # it was used
        return data

    def write(self, key: str, data: bytes) -> None:
        """Add or replace an entry; one larger than the share of a folder is left out."""
        packed = zlib.compress(data, 1)
        sealed = _checksum(key, packed) + packed
        if len(sealed) > self._share or len(data) > MAX_UNPACKED * self._share:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(path.parent, len(sealed))
            replace_whole(path, sealed)
        except OSError:
            log.debug("a result was not kept", exc_info=True)

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Wait until no other thread or process of this machine is in the block for ``key``.

        Keys of the same first digits share a file, so that there are few.
        """
        with locked(self.folder / UNDER_WAY / key[:LOCK_DIGITS]) as known:
            if not known:
                log.debug("others may compute the same result meanwhile")
            yield

    def _make_room(self, folder: Path, needed: int) -> None:
        """Remove entries, and files that a writer left behind, until ``needed`` bytes fit into ``folder``."""
        found = sorted(_entries(folder))
        left = sum(size for _, size, _ in found) + needed - self._share
        for _, size, path in found:
            if left <= 0:
                return
            with suppress(OSError):
                os.unlink(path)
            left -= size


def user_store() -> Store | None:
    """Return the store in the folder that the environment names, else in the user's cache folder; None without one."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    folder = Path(named).absolute() if named else user_cache_path("magus", appauthor=False)
    return Store(folder / "results") if folder.is_absolute() else None


def _entries(folder: Path) -> Iterator[tuple[int, int, str]]:
    """Yield time of the last use, size and path of the files in ``folder`` that a store wrote."""
    with os.scandir(folder) as found:
        for entry in found:
            with suppress(OSError):  # another process removed it
                if _OWN_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield stat.st_mtime_ns, stat.st_size, entry.path


def _opened(key: str, sealed: bytes, max_bytes: int) -> bytes | None:
    """Return the data of the file of an entry, None if it is none or unpacks to more than ``max_bytes``."""
    packed = sealed[CHECKSUM_BYTES:]
    if _checksum(key, packed) != sealed[:CHECKSUM_BYTES]:
        return None
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(packed, max_bytes)
    except zlib.error:
        return None
    return data if unpacking.eof else None


def _checksum(key: str, packed: bytes) -> bytes:
    return sha256(key.encode() + packed).digest()
