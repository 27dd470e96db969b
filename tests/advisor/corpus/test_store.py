"""The store: what is written is read, whole or not at all; what anybody else wrote is refused, and stays as it is."""

import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor.training.families import draw
from magus.advisor.training.record import Record, Tried
from magus.advisor.training.store import CorpusStore, StoreError, UnsoundError, open_store
from magus.compiler.codes import Code
from tests.helpers.corpus import quick_record

NAN, INF = float("nan"), float("inf")
RECORDS = tuple(quick_record(draw(5, idx)) for idx in range(3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of three records."""
    with open_store(tmp_path / "store.db", "one") as store:
        for record in RECORDS:
            store.add(f"key {record.idx}", record, 1.5)
    return tmp_path / "store.db"


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def refused(path: Path, lock_s: float = 0.1) -> StoreError:
    """The error of opening a store; the file is as it was."""
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError) as caught, open_store(path, "one", lock_s):
        pass
    assert not path.is_file() or path.read_bytes() == before
    assert str(path) in str(caught.value) and caught.value.rejection.hint
    return caught.value


def test_what_is_written_is_read(path: Path) -> None:
    with open_store(path, "one") as store:
        assert tuple(store.record(f"key {idx}") for idx in range(3)) == RECORDS
        assert store.indices(5) == (0, 1, 2) and store.indices(6) == ()
        assert store.keys(5) == {"key 0", "key 1", "key 2"} and not store.keys(6)
        assert store.record("key 7") is None
        assert store.num_runs(["key 0", "key 2", "key 7"]) == 4


def test_a_key_that_is_known_is_not_written_again(path: Path) -> None:
    with open_store(path, "one") as store:
        store.add("key 1", RECORDS[2], 9.0)

        assert store.record("key 1") == RECORDS[1] and store.num_runs(["key 1"]) == 2


def test_records_of_another_engine_stay_and_are_not_returned(path: Path) -> None:
    with open_store(path, "two") as store:
        assert not store.keys(5) and not store.indices(5) and store.record("key 0") is None
        assert store.num_of_others() == 3
        store.add("key 8", RECORDS[0], 1.0)
        assert store.record("key 8") == RECORDS[0]
    with open_store(path, "one") as store:
        assert store.record("key 0") == RECORDS[0] and store.num_of_others() == 1


def with_plan(**changes: object) -> Record:
    first, *others = RECORDS[0].plans
    return replace(RECORDS[0], plans=(replace(first, **changes), *others))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "value"),
    [
        *((with_plan(estimate_ticks=value), "estimate_ticks") for value in (NAN, INF, -1.0, 0.0, 7)),
        *((with_plan(ticks=value), "ticks") for value in (-1, 0, 1 << 63, 1.5, True)),
        (with_plan(unit_bytes=0), "unit_bytes"),
        (with_plan(proposer="a friend"), "proposer"),
        (with_plan(expression=""), "expression"),
        (with_plan(expression="x" * 100_000), "expression"),
        (with_plan(expression="another"), "baseline"),
        (replace(RECORDS[0], plans=()), "no plans"),
        (replace(RECORDS[0], bound_ticks=0), "bound_ticks"),
        (replace(RECORDS[0], idx=-1), "idx"),
        (replace(RECORDS[0], family=replace(RECORDS[0].family, gpu=None)), "gpu is missing"),  # type: ignore[arg-type]
    ],
)
def test_what_no_search_finds_is_not_written(path: Path, record: Record, value: str) -> None:
    with open_store(path, "one") as store:
        with pytest.raises(UnsoundError, match=value):
            store.add("key 9", record, 1.0)

        assert len(store.keys(5)) == 3 and store.num_runs(["key 9"]) == 0


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("runs SET ticks = -5", "ticks is -5"),
        ("runs SET ticks = 'soon'", "ticks is 'soon'"),
        ("runs SET ticks = 1.5", "ticks is 1.5"),
        ("runs SET estimate_ticks = 9e999", "estimate_ticks is inf"),
        ("runs SET estimate_ticks = 'NaN'", "estimate_ticks is 'NaN'"),
        ("runs SET unit_bytes = 0", "unit_bytes is 0"),
        ("runs SET proposer = 'a friend'", "proposer is 'a friend'"),
        ("runs SET expression = x'80'", "expression is "),
        ("scenarios SET ranks = 'many'", "ranks is 'many'"),
        ("scenarios SET moved = 7", "moved is 7"),
        ("scenarios SET seed = -1", "seed is -1"),
        ("scenarios SET baseline = 'none'", "baseline"),
        ("runs SET scenario = scenario + 10", "no plans"),
        ("runs SET expression = CAST(x'80' AS TEXT)", "damaged"),
        ("runs SET expression = CAST(zeroblob(2000000) AS TEXT)", "damaged"),
    ],
)
def test_a_value_that_was_changed_is_reported(path: Path, change: str, value: str) -> None:
    edit(path, f"UPDATE {change}")

    with open_store(path, "one") as store, pytest.raises(StoreError) as caught:
        store.record("key 1")

    assert value in str(caught.value) and caught.value.rejection.code is Code.MGS430


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("UPDATE meta SET value = 'magus-corpus/2'", "its schema is 'magus-corpus/2', and this version of Magus reads"),
        ("DELETE FROM meta", "its schema is none"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "its tables were changed"),
        ("DROP TABLE runs", "its tables were changed"),
        ("DROP TABLE meta", "of another program"),
    ],
)
def test_tables_of_another_form_are_refused(path: Path, statement: str, reported: str) -> None:
    edit(path, statement)

    error = refused(path)

    assert reported in str(error) and error.rejection.code is Code.MGS430


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    edit(tmp_path / "store.db", "CREATE TABLE bookmarks (address TEXT)")

    assert "of another program" in str(refused(tmp_path / "store.db"))


@pytest.mark.parametrize("data", [b"no database" * 100, b"\x80\x04pickle", b"SQLite format 3\0" + bytes(4096)])
def test_what_is_no_database_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "store.db").write_bytes(data)

    error = refused(tmp_path / "store.db")

    assert error.rejection.code is Code.MGS430


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_that_is_cut_off_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])

    assert refused(path).rejection.code is Code.MGS430


def test_damage_within_the_file_is_reported(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(byte ^ 0x5A for byte in data[4096:])
    path.write_bytes(data)

    assert refused(path).rejection.code is Code.MGS430


def test_a_locked_store_is_reported_after_a_while(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")

        error = refused(path)

    assert "is locked" in str(error) and error.rejection.code is Code.MGS431


def test_a_store_is_waited_for(path: Path) -> None:
    other = sqlite3.connect(path, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, other.rollback)
    release.start()

    with open_store(path, "one") as store:
        assert store.record("key 0") == RECORDS[0]
    release.join()
    other.close()


def test_a_path_without_a_file_to_be_is_reported(tmp_path: Path) -> None:
    assert "is not a file" in str(refused(tmp_path))
    assert "there is no folder" in str(refused(tmp_path / "none" / "store.db"))
    with pytest.raises(StoreError), open_store(Path("a\0b"), "one"):
        pass


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
@pytest.mark.parametrize("kept", ["file", "folder"])
def test_a_store_that_cannot_be_written_is_reported(path: Path, kept: str) -> None:
    where = path if kept == "file" else path.parent
    mode = where.stat().st_mode
    where.chmod(0o500 if kept == "folder" else 0o400)
    try:
        assert refused(path).rejection.code is Code.MGS431
    finally:
        where.chmod(mode)


def test_a_record_is_written_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(_record: Record) -> list[tuple[object, ...]]:
        return [("a", "template", 1, 1, 1.0), ("a", "template", None, 1, 1.0)]

    monkeypatch.setattr("magus.advisor.training.store.plan_rows", rows)
    monkeypatch.setattr("magus.advisor.training.store.record_of_rows", lambda *_: RECORDS[0])  # the check before
    with open_store(path, "one") as store:
        with pytest.raises(StoreError):
            store.add("key 9", RECORDS[0], 1.0)

        assert len(store.keys(5)) == 3
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (6,)


def test_a_disk_that_fills_up_costs_no_record(path: Path) -> None:
    with open_store(path, "one") as store:
        ((pages,),) = store.connection.execute("PRAGMA page_count")
        store.connection.execute(f"PRAGMA max_page_count = {pages}")
        _fill(store)

        assert tuple(store.record(f"key {idx}") for idx in range(3)) == RECORDS
    with open_store(path, "one") as store:
        assert store.record("key 0") == RECORDS[0]


def _fill(store: CorpusStore) -> None:
    plans = tuple(Tried(f"{'x' * 1000} {number}", "template", 5, 5, 5.0) for number in range(20))
    record = replace(RECORDS[0], plans=(*RECORDS[0].plans, *plans))
    with pytest.raises(StoreError) as caught:
        store.add("large", record, 1.0)
    assert caught.value.rejection.code is Code.MGS431 and store.keys(5) == {"key 0", "key 1", "key 2"}
