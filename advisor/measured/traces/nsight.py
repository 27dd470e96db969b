"""Copies between GPUs in what ``nsys export --type sqlite`` writes.

The tables are those of Nsight Systems' "SQLite Export Schema Reference"; they are made lazily, and times are in ns. The
file is hostile until checked: it is opened to be read alone, no view or trigger of it runs, and each value is checked.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from .kineto import TraceError
from .run import MAX_KEPT, TracedCopy, Unused

_MAGIC = b"SQLite format 3\0"
_KERNELS, _COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
_NEEDED = ("start", "end", "bytes", "srcDeviceId", "dstDeviceId")
_MAX_STEPS = 2_000_000_000
"""Instructions of SQLite's machine: what a file that was made to hang takes before it is given up."""


def is_nsight(file: Path) -> bool:
    """Whether ``file`` is a database of SQLite.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with file.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read_nsight(file: Path, unused: Unused) -> tuple[TracedCopy, ...]:
    """Return the copies between GPUs in a database; what is left out goes to ``unused``.

    Raises
    ------
    TraceError
        If it is no profile, or is damaged.
    """
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            _guard(database)
            return tuple(_copies(database, unused))
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise TraceError(f"SQLite cannot read it: {str(error)[:128]}") from None


def _guard(database: sqlite3.Connection) -> None:
    """Let nothing run that the file brings, and end what takes too long."""
    for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        database.execute(f"PRAGMA {setting}")
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1_000_000
        return int(steps > _MAX_STEPS)

    database.set_progress_handler(count, 1_000_000)


def _copies(database: sqlite3.Connection, unused: Unused) -> Iterator[TracedCopy]:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not any(isinstance(name, str) and name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
        raise TraceError("it has no table of Nsight Systems (CUPTI_ACTIVITY_KIND_...)")
    if _KERNELS in tables:
        (number,) = database.execute(f"SELECT count(*) FROM {_KERNELS}").fetchone()
        unused["kernel", "of which the profile does not say what it writes, collectives too"] += number
    if _COPIES not in tables:
        return
    columns = {row[1] for row in database.execute(f"PRAGMA table_info({_COPIES})")}
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise TraceError(f"its table of copies has no column {', '.join(missing)}")
    wanted = ", ".join(f'"{name}"' for name in _NEEDED)  # "end" is a word of SQL
    for row in database.execute(f"SELECT {wanted} FROM {_COPIES} LIMIT {MAX_KEPT}"):
        start, end, size, source, target = row
        if source is None or target is None or source == target:
            unused["transfer", "within a GPU, from the host or to it"] += 1
        elif not all(type(value) is int and value >= 0 for value in row) or not start < end:
            unused["transfer", "without time, size or GPUs"] += 1
        elif size:
            yield TracedCopy(start / 1000, end / 1000, source, target, size)
