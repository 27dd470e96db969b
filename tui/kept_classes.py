"""The code of dataclasses, kept on disk as Python keeps that of modules: compiling it takes half of a short command.

Python writes the methods of a dataclass as text, and compiles that in each process. The commands keep what comes of it
beside the bytecode of this module, by its text; where Python keeps no bytecode, nothing is kept either.
"""

import dataclasses
import marshal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType
from zlib import crc32

MAX_TEXTS = 20_000
"""Methods that are kept; where there are more, all are compiled again, and those of classes that are no more go."""


def place() -> Path:
    """Return the file of the commands."""
    return Path(cache_from_source(__file__)).with_suffix(".classes")


@contextmanager
def kept_classes(path: Path) -> Iterator[None]:
    """Take the code of dataclasses that are made in the block from ``path``, and keep there what is new."""
    known = _read(path)
    num_known = len(known)

    def run(text: str, module: dict[str, object], names: dict[str, object]) -> None:
        code = known.get(text)
        if code is None:
            code = known[text] = compile(text, "<string>", "exec", dont_inherit=True)
        exec(code, module, names)

    of_module = vars(dataclasses)
    of_module["exec"] = run  # which is looked for there before the function of Python
    try:
        yield
    finally:
        del of_module["exec"]
        if len(known) > num_known and not sys.dont_write_bytecode:
            _write(path, known)


def _read(path: Path) -> dict[str, CodeType]:
    """Return what is kept; nothing if it is of another Python, or not as it was written."""
    size = len(MAGIC_NUMBER)
    try:
        kept = path.read_bytes()
        magic, check, data = kept[:size], kept[size : size + 4], kept[size + 4 :]
        known: dict[str, CodeType] = marshal.loads(data) if (magic, check) == (MAGIC_NUMBER, _check(data)) else {}
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return known if len(known) <= MAX_TEXTS else {}


def _write(path: Path, known: dict[str, CodeType]) -> None:
    """Keep ``known``, unless it cannot be written."""
    from ..compiler.text.writing import replace_whole  # which makes no dataclass before its code is looked for

    data = marshal.dumps(known)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, MAGIC_NUMBER + _check(data) + data)


def _check(data: bytes) -> bytes:
    return crc32(data).to_bytes(4, "big")
