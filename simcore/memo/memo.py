"""Answers kept from one process to the next: looked up by what decides them, else computed and kept.

Off unless a caller says ``memoizing``: a library writes nothing to the user's folders unasked.
"""

import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import TypeVar

import numpy as np

from ..cores.engine import ENVIRONMENT_VARIABLE, has_numba
from .codec import Given, MalformedError, decode, encode, plain_parts
from .store import Store

T = TypeVar("T")

SIMULATOR = ("compiler", "simcore")
ADVISOR = ("grammar", *SIMULATOR, "advisor")
"""The packages that decide the result of a simulation, and those that decide advice: it reads shipped ``.mgs``."""

PACKAGE = __name__.removesuffix("simcore.memo.memo")
"""Begin of the names of all modules of Magus."""

ROOT = Path(__file__).parents[2]
StoredFunctions = Mapping[Callable[..., object], tuple[str, str]]
"""Module and name that stand in keys for functions that have others now."""

log = logging.getLogger(__name__)
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
        return Memo(_store, content_hash(parts))
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


def _key_parts(value: object, functions: StoredFunctions) -> object:
    """Return what stands for a part of a question; functions and classes are known by their names.

    Raises
    ------
    TypeError
        If the part, or its class, is not of Magus, so that its sources are not hashed, or is a function in a function.
    """
    if isinstance(value, frozenset):
        return [type(value).__name__, *sorted(value)]
    if isinstance(value, Fraction):
        return plain_parts(value)
    if isinstance(value, FunctionType) and value in functions:
        return functions[value]
    named = value if isinstance(value, FunctionType | type) else type(value)
    if not named.__module__.startswith(PACKAGE) or "<" in named.__qualname__:
        raise TypeError(f"{named.__module__}.{named.__qualname__} has no name in Magus")
    return [named.__module__, named.__qualname__] if named is value else plain_parts(value)


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
