"""Answers kept from one process to the next: looked up by what decides them, else computed and kept.

Off unless a caller says ``memoizing``: a library writes nothing to the user's folders unasked.
"""

import logging
import os
import platform
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from platformdirs import user_cache_path

from ...compiler.ir import System
from ...compiler.text.writing import locked, replace_whole
from ..cores.engine import ENVIRONMENT_VARIABLE, has_numba
from .codec import Given, MalformedError, decode, encode, plain_parts

# A folder of entries, each in a file of its own: bounded, and safe under other processes and their sudden ends.
#
# A file is written under another name and renamed, so that a reader finds all of an entry or nothing. It begins with a
# checksum of its key and its data: what is cut off, altered or from elsewhere is no entry. Entries lie in 256 folders
# by the begin of their keys, which are hashes. Each folder is kept within its share of the bound, so that no process
# needs to know the whole; the entries that were used longest ago go first.
#
# Who computes an entry may say so (``alone``): another process that wants it waits, and finds it.
#
# Nothing here fails: an entry that cannot be read is missing, and one that cannot be written is left out.

FOLDER_VARIABLE = "MAGUS_CACHE_DIR"
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
    named = os.environ.get(FOLDER_VARIABLE)
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


T = TypeVar("T")

SIMULATOR = ("compiler", "simcore")
ADVISOR = ("grammar", *SIMULATOR, "advisor")
"""The packages that decide the result of a simulation, and those that decide advice: it reads shipped ``.mgs``."""

PACKAGE = __name__.removesuffix("simcore.memo.memo")
"""Begin of the names of all modules of Magus."""

ROOT = Path(__file__).parents[2]
StoredFunctions = Mapping[Callable[..., object], tuple[str, str]]
"""Module and name that stand in keys for functions that have others now."""

_store: Store | None = None


@contextmanager
def memoizing(store: Store | None) -> Iterator[None]:
    """Keep answers in ``store`` within the block, in all threads; None keeps nothing."""
    before = current_store()
    use(store)
    try:
        yield
    finally:
        use(before)


def use(store: Store | None) -> None:
    """Keep answers in ``store`` from now on."""
    global _store
    _store = store


def current_store() -> Store | None:
    """Return the store in use, for other processes to use it too."""
    return _store


@dataclass(frozen=True, slots=True)
class Memo:
    """The place of one answer in a store."""

    store: Store
    key: str

    def read(self) -> bytes | None:
        """Return what is kept, None if nothing is."""
        return self.store.read(self.key)

    def write(self, data: bytes) -> None:
        """Keep ``data``."""
        self.store.write(self.key, data)

    def alone(self) -> AbstractContextManager[None]:
        """Return a block in which no other process of this machine is that wants this answer; see ``Store.alone``."""
        return self.store.alone(self.key)

    def recall(self, kind: type[T], given: Given = ()) -> T | None:
        """Return the answer, None if it is not known; see ``codec`` for what is ``given``."""
        data = self.read()
        if data is None:
            return None
        try:
            return decode(data, kind, given)
        except MalformedError:
            log.debug("a result on disk is malformed", exc_info=True)
            return None

    def keep(self, answer: object, given: Given = ()) -> None:
        """Keep an answer, if it consists of plain data."""
        try:
            self.write(encode(answer, given))
        except TypeError:
            log.debug("a result cannot be kept", exc_info=True)


def memo_of(question: tuple[object, ...], packages: tuple[str, ...] = SIMULATOR) -> Memo | None:
    """Return where the answer to ``question`` is kept; None if nothing is kept.

    ``question`` is all that decides the answer beside ``packages``, the parts of Magus that compute it, and the core of
    the simulator, which results name.
    """
    if _store is None:
        return None
    try:
        parts = (sources_digest(packages), os.environ.get(ENVIRONMENT_VARIABLE), has_numba(), question)
        return Memo(_store, sha256(encode(parts, parts_of=_question_parts)).hexdigest())
    except (UnknownSourcesError, TypeError):
        log.debug("a result cannot be kept", exc_info=True)
        return None


def content_hash(parts: tuple[object, ...], functions: StoredFunctions | None = None) -> str:
    """Return the hash of all that ``parts`` consist of, in hexadecimal.

    Classes and ``functions`` stand there under their stored names, so that the hash outlives a change of names.

    Raises
    ------
    TypeError
        If a part is not of Magus and no plain data.
    """
    return sha256(encode(parts, parts_of=partial(_key_parts, functions=functions or {}))).hexdigest()


def memoized(
    memo: Memo | None,
    kind: type[T],
    compute: Callable[[], T],
    *,
    given: Given = (),
    lasts: Callable[[T], bool] = lambda answer: True,
) -> T:
    """Return the answer from ``memo``, else compute it, and keep it if it ``lasts``."""
    if memo is None:
        return compute()
    known = memo.recall(kind, given)
    if known is not None:
        return known
    answer = compute()
    if lasts(answer):
        memo.keep(answer, given)
    return answer


def _key_parts(value: Any, functions: StoredFunctions) -> object:
    """Return what stands for a part of a question; functions and classes are known by their names.

    Raises
    ------
    TypeError
        If the part, or its class, is not of Magus, so that its sources are not hashed, or is a function in a function.
    """
    kind: Any = type(value)
    if _is_plain(kind):
        return plain_parts(value)
    if isinstance(value, frozenset):
        return [kind.__name__, *sorted(value)]
    if isinstance(value, FunctionType) and value in functions:
        return functions[value]
    named = value if isinstance(value, FunctionType | type) else kind
    if named is kind or not named.__module__.startswith(PACKAGE) or "<" in named.__qualname__:
        raise TypeError(f"{named.__module__}.{named.__qualname__} has no name in Magus")
    return [named.__module__, named.__qualname__]


@cache
def _is_plain(kind: type) -> bool:
    """Whether values of ``kind`` are known by what is in them: fractions, and of Magus all but sets and classes."""
    of_magus = kind.__module__.startswith(PACKAGE) and "<" not in kind.__qualname__
    return issubclass(kind, Fraction) or (of_magus and not issubclass(kind, frozenset | type))


def _question_parts(value: object) -> object:
    """What stands for a part of a question: of a system, which is large and asked about often, a hash."""
    return _system_hash(value) if isinstance(value, System) else _key_parts(value, {})


@lru_cache(maxsize=8)
def _system_hash(system: System) -> str:
    return content_hash((system,))


class UnknownSourcesError(RuntimeError):
    """The files of a package cannot be read."""


@cache
def sources_digest(packages: tuple[str, ...], root: Path = ROOT) -> str:
    """Return a hash of all files of ``packages`` of Magus, of the versions of Python and numpy, and of the machine.

    The content of the files is hashed, some 10 ms for all packages. Their times and sizes say less: where an installer
    sets the times, two versions of a file may share both.

    Raises
    ------
    UnknownSourcesError
        If the files of a package are not on disk, as in an archive, or cannot be read.
    """
    digest = sha256(f"{sys.version} {np.__version__} {sys.platform} {platform.machine()}".encode())
    for package in packages:
        files = _files(os.path.join(root, package))
        if not files:
            raise UnknownSourcesError(f"no files of {package} in {root}")
        for file in files:
            content = _content(file)
            digest.update(f"\n{file.removeprefix(str(root))} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _files(folder: str) -> list[str]:
    """Return the files in ``folder`` and below it in order, without bytecode and machine code."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.join(place, name) for name in names]
    return sorted(found)


def _content(file: str) -> bytes:
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.read()
    except OSError as error:
        raise UnknownSourcesError(f"{file}: {error.strerror}") from error
