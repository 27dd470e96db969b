"""The store of a corpus: an SQLite file (WAL) of records by key, which only grows.

A record is written in one transaction: whenever a process is killed, the store holds the record whole or not at all.
Records of other versions of the engine stay, and are not returned. The file may come from anywhere: tables of another
form are refused, values are checked, and nothing in it is run.
"""

import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from ...compiler.codes import Code
from ...compiler.ir import Rejection
from ..bespoke import Proposer
from .families import ScenarioFamily
from .record import Record, Tried

SCHEMA = "magus-corpus/1"
LOCK_S = 10.0
"""Seconds to wait for another process that writes."""
MAX_VALUE_BYTES = 1 << 20

TABLES = {
    "meta": "CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
    "scenarios": """CREATE TABLE scenarios (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, engine TEXT NOT NULL, seed INTEGER NOT NULL, idx INTEGER NOT NULL,
  gpu TEXT NOT NULL, topology TEXT NOT NULL, ranks INTEGER NOT NULL, pattern TEXT NOT NULL, model TEXT NOT NULL,
  size TEXT NOT NULL, moved INTEGER NOT NULL, bound_ticks INTEGER NOT NULL, baseline TEXT NOT NULL,
  seconds REAL NOT NULL
)""",
    "runs": """CREATE TABLE runs (
  scenario INTEGER NOT NULL REFERENCES scenarios (id), place INTEGER NOT NULL, expression TEXT NOT NULL,
  proposer TEXT NOT NULL, ticks INTEGER NOT NULL, unit_bytes INTEGER NOT NULL, estimate_ticks REAL NOT NULL,
  PRIMARY KEY (scenario, place)
) WITHOUT ROWID""",
    "scenarios_by_idx": "CREATE INDEX scenarios_by_idx ON scenarios (engine, seed, idx)",
}
SCENARIO_COLUMNS = "seed, idx, gpu, topology, ranks, pattern, model, size, moved, bound_ticks, baseline"
RUN_COLUMNS = "expression, proposer, ticks, unit_bytes, estimate_ticks"
ADD_SCENARIO = f"""INSERT OR IGNORE INTO scenarios (key, engine, seconds, {SCENARIO_COLUMNS})
  VALUES (?, ?, ?, {", ".join("?" * 11)})"""
ADD_RUN = f"INSERT INTO runs (scenario, place, {RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
Row = Sequence[object]
Kept = TypeVar("Kept", ScenarioFamily, Tried)

MAX_INT = (1 << 63) - 1
MAX_CHARS = 1 << 16
"""Characters of an expression; the longest are of plans with many parts."""
MAX_PLANS = 1 << 14
"""Plans of one record; a full search simulates some hundreds."""
PROPOSERS = frozenset(proposer.value for proposer in Proposer)


class CorpusError(Exception):
    """A corpus cannot be built or read; ``rejection`` has the code, the message and a hint."""

    def __init__(self, code: Code, message: str, hint: str) -> None:
        self.rejection = Rejection(code, message, hint)
        super().__init__(self.rejection)


class StoreError(CorpusError):
    """The store cannot be opened, read or written; what it holds is as before."""


class UnsoundError(ValueError):
    """A value that no search finds; the message names it."""


@dataclass(frozen=True, slots=True)
class CorpusStore:
    """An open store; ``engine`` is the version whose records are read and written."""

    path: Path
    engine: str
    connection: sqlite3.Connection

    def add(self, key: str, record: Record, seconds: float) -> None:
        """Keep ``record``, which took ``seconds``, unless its key is known.

        Raises
        ------
        UnsoundError
            If a value is none that a search finds, such as a time that is NaN.
        StoreError
            If the store cannot be written; it is then as before.
        """
        row = scenario_row(record)
        with _reported(self.path), self.connection:
            added = self.connection.execute(ADD_SCENARIO, (key, self.engine, seconds, *row))
            if added.rowcount:
                runs = enumerate(plan_rows(record))
                self.connection.executemany(ADD_RUN, ((added.lastrowid, place, *plan) for place, plan in runs))

    def keys(self, seed: int) -> frozenset[str]:
        """Return the keys of all records of a seed."""
        rows = self._rows("SELECT key FROM scenarios WHERE engine = ? AND seed = ?", self.engine, seed)
        return frozenset(key for (key,) in rows)

    def indices(self, seed: int) -> tuple[int, ...]:
        """Return the numbers of the scenarios of a seed, in order."""
        rows = self._rows("SELECT DISTINCT idx FROM scenarios WHERE engine = ? AND seed = ?", self.engine, seed)
        return tuple(sorted(idx for (idx,) in rows if type(idx) is int))

    def record(self, key: str) -> Record | None:
        """Return the record of a key, None if there is none of this engine.

        Raises
        ------
        StoreError
            If it cannot be read, or has a value that no search finds.
        """
        found = self._rows(
            f"SELECT id, {SCENARIO_COLUMNS} FROM scenarios WHERE key = ? AND engine = ?", key, self.engine
        )
        if not found:
            return None
        ((number, *row),) = found
        plans = self._rows(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE scenario = ? ORDER BY place LIMIT {MAX_PLANS + 1}", number
        )
        try:
            return record_of_rows(row, plans)
        except UnsoundError as error:
            hint = "begin a new store, or take this one from a copy; the other records in it are as they were"
            raise StoreError(Code.MGS430, f"{self.path}: the record {key[:12]} is unsound: {error}", hint) from None

    def num_runs(self, keys: Iterable[str]) -> int:
        """Return the number of simulated plans of these records."""
        count = "SELECT count(*) FROM runs JOIN scenarios ON runs.scenario = scenarios.id WHERE key = ?"
        return sum(number for key in keys for (number,) in self._rows(count, key))

    def num_of_others(self) -> int:
        """Return the number of scenarios that another version of the engine searched."""
        rows = self._rows("SELECT count(*) FROM scenarios WHERE engine != ?", self.engine)
        return sum(number for (number,) in rows)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _reported(self.path):
            return self.connection.execute(query, values).fetchall()


@contextmanager
def open_store(path: Path, engine: str, lock_s: float = LOCK_S) -> Iterator[CorpusStore]:
    """Open the store at ``path``, which is made if there is no file; it is closed with the block.

    Raises
    ------
    StoreError
        If it cannot be opened and written, or is no store of this version.
    """
    if "\0" in str(path) or (path.exists() and not path.is_file()):
        raise StoreError(Code.MGS431, f"{path} is not a file", "name a file, which is made if there is none")
    if not path.absolute().parent.is_dir():
        raise StoreError(Code.MGS431, f"{path}: there is no folder {path.parent}", "make the folder first")
    if path.exists() and not os.access(path, os.W_OK):  # SQLite would open it, and fail after the first search
        raise StoreError(Code.MGS431, f"{path} is read-only", "make it writable, or copy it and name the copy")
    with _reported(path):
        connection = sqlite3.connect(path.absolute(), timeout=lock_s)
    with closing(connection):
        with _reported(path):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            _prepare(path, connection)
            connection.execute("PRAGMA journal_mode = WAL")  # only now: a file of another program stays as it is
        yield CorpusStore(path, engine, connection)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file; refuse a file with other tables, or damaged ones."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")  # shows that it can be written, and that nobody else makes the tables
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        if not found:
            for statement in TABLES.values():
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES ('schema', ?)", (SCHEMA,))
            return
    if found.get("meta") != TABLES["meta"]:
        raise StoreError(Code.MGS430, f"{path} is an SQLite file of another program", "name another file")
    versions = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
    if versions != [(SCHEMA,)]:
        version = f"{versions[0][0]!r:.40}" if versions else "none"
        message = f"{path}: its schema is {version}, and this version of Magus reads '{SCHEMA}'"
        raise StoreError(Code.MGS430, message, "begin a new store, or use the version of Magus that wrote this one")
    if found != TABLES:
        raise StoreError(Code.MGS430, f"{path}: its tables were changed", "begin a new store, or take it from a copy")
    ((state,),) = connection.execute("PRAGMA quick_check(1)")
    if state != "ok":
        raise _damaged(path, str(state))


def _damaged(path: Path, reason: str) -> StoreError:
    hint = "nothing was changed; take the file from a copy, or move it away and build it anew"
    return StoreError(Code.MGS430, f"{path} is no store, or a damaged one: {reason}", hint)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        kind = getattr(error, "sqlite_errorname", "")
        if kind.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            hint = "another process uses it; wait for it to end, or build into another file"
            raise StoreError(Code.MGS431, f"{path} is locked", hint) from error
        if kind.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_TOOBIG", "SQLITE_ERROR")) or not kind:
            raise _damaged(path, str(error)) from error
        hint = "the store and its folder have to be writable, with room on the disk; what was stored stays"
        raise StoreError(Code.MGS431, f"{path}: {error}", hint) from error


def scenario_row(record: Record) -> tuple[object, ...]:
    """Return seed, index, the fields of the family, bound and baseline.

    Raises
    ------
    UnsoundError
        If a value is out of its range.
    """
    *words, moved = astuple(record.family)
    row = (record.seed, record.idx, *words, int(moved), record.bound_ticks, record.baseline)
    record_of_rows(row, plan_rows(record))
    return row


def plan_rows(record: Record) -> list[tuple[object, ...]]:
    """Return a row for each plan."""
    return [astuple(plan) for plan in record.plans]


def record_of_rows(row: Row, plans: Sequence[Row]) -> Record:
    """Return the record of a ``scenario_row`` and its ``plan_rows``.

    Raises
    ------
    UnsoundError
        If a value is out of its range, or of another type.
    """
    seed, idx, *words, bound, baseline = row
    family = _checked(ScenarioFamily, words)
    if not 0 < len(plans) <= MAX_PLANS:
        raise UnsoundError(f"it has {'too many' if plans else 'no'} plans")
    record = Record(
        _whole("seed", seed, 0),
        _whole("idx", idx, 0),
        family,
        _whole("bound_ticks", bound),
        _text("baseline", baseline),
        tuple(map(_tried, plans)),
    )
    if record.baseline not in {plan.expression for plan in record.plans}:
        raise UnsoundError("its baseline is none of its plans")
    return record


def _tried(row: Row) -> Tried:
    tried = _checked(Tried, row)
    if tried.proposer not in PROPOSERS:
        raise UnsoundError(f"proposer is {_shown(tried.proposer)}")
    return tried


def _checked(kind: type[Kept], row: Row) -> Kept:
    """Return a value whose fields are those of a row, each of its type and in the range of that."""
    checks: dict[Any, Callable[[str, object], Any]] = {str: _text, int: _whole, float: _time, bool: _truth}
    fields = zip(get_type_hints(kind).items(), row, strict=True)
    return kind(*(checks[hint](name, value) for (name, hint), value in fields))


def _truth(name: str, value: object) -> bool:
    return bool(_whole(name, value, 0, 1))


def _text(name: str, value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= MAX_CHARS:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _whole(name: str, value: object, least: int = 1, most: int = MAX_INT) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _time(name: str, value: object) -> float:
    if type(value) is not float or not 0 < value < math.inf:
        raise UnsoundError(f"{name} is {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"
