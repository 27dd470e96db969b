"""Builds of a corpus: what is stored is searched no more, what fails is named, and what ends early loses nothing."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor.training import build as attempts
from magus.advisor.training.build import (
    DIED,
    OTHER_VERSION,
    Attempt,
    Backend,
    BuildReport,
    Task,
    build_corpus,
    on_this_machine,
    records_of,
)
from magus.advisor.training.families import Drawn, draw
from magus.advisor.training.record import Record, engine_version, key_of
from magus.advisor.training.store import CorpusStore, StoreError, open_store
from tests.helpers.corpus import DIES, FAILS, deadly_record, failing_record, quick_record
from tests.helpers.paths import ROOT
from tests.helpers.some import some

SEED = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    with open_store(tmp_path / "store.db", engine_version()) as opened:
        yield opened


class Here:
    """A backend that searches in this process and counts; ``changed`` alters what comes back."""

    def __init__(self, changed: dict[int, Attempt] | None = None) -> None:
        self.requested: list[int] = []
        self.changed = changed or {}

    def __call__(self, task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
        for idx in reversed(indices):
            self.requested.append(idx)
            yield self.changed.get(idx) or task(idx)


def stored(store: CorpusStore) -> tuple[Record, ...]:
    return tuple(record for _, record in records_of(store, SEED))


def test_what_is_stored_is_searched_no_more(store: CorpusStore) -> None:
    first, second, third = Here(), Here(), Here()
    one = build_corpus(store, SEED, 3, first, make=quick_record)
    two = build_corpus(store, SEED, 5, second, make=quick_record)
    three = build_corpus(store, SEED, 5, third, make=quick_record)

    assert (first.requested, second.requested, third.requested) == ([2, 1, 0], [4, 3], [])
    assert [(each.new, each.stored, each.runs) for each in (one, two, three)] == [(3, 3, 6), (2, 5, 10), (0, 5, 10)]
    assert Counter(dict(two.patterns)) == Counter(draw(SEED, idx).family.pattern for idx in range(5))


def test_records_come_in_order_with_their_scenarios(store: CorpusStore) -> None:
    build_corpus(store, SEED, 4, Here(), make=quick_record)
    build_corpus(store, SEED + 1, 2, Here(), make=quick_record)

    found = tuple(records_of(store, SEED))

    assert [record for _, record in found] == [quick_record(draw(SEED, idx)) for idx in range(4)]
    assert [drawn for drawn, _ in found] == [draw(SEED, idx) for idx in range(4)]


def test_a_scenario_that_is_drawn_differently_today_is_searched_anew(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_corpus(store, SEED, 3, Here(), make=quick_record)

    def other_draw(seed: int, idx: int) -> Drawn:
        return replace(draw(9, 9), seed=seed, idx=idx) if idx == 1 else draw(seed, idx)

    monkeypatch.setattr("magus.advisor.training.build.draw", other_draw)
    monkeypatch.setattr(attempts, "draw", other_draw)

    assert [record.idx for record in stored(store)] == [0, 2]
    again = Here()
    report = build_corpus(store, SEED, 3, again, make=quick_record)
    assert (again.requested, report.stored, report.new) == ([1], 3, 1)
    assert [record.family for record in stored(store)][1] == draw(9, 9).family


def test_a_scenario_that_fails_is_named_and_tried_again_next_time(store: CorpusStore) -> None:
    report = build_corpus(store, SEED, 5, Here(), make=failing_record)
    again = Here()
    build_corpus(store, SEED, 5, again, make=quick_record)

    (failure,) = report.failures
    assert (failure.subject, report.stored, report.new) == (f"scenario {FAILS}", 4, 4)
    assert "no such thing" in failure.reason
    assert again.requested == [FAILS]


def nan_record(drawn: Drawn) -> Record:
    record = quick_record(drawn)
    return replace(record, plans=tuple(replace(plan, estimate_ticks=float("nan")) for plan in record.plans))


def test_what_is_unsound_or_of_another_version_is_not_kept(store: CorpusStore) -> None:
    changed = {
        0: Attempt(0, nan_record(draw(SEED, 0)), key_of(draw(SEED, 0)), 1.0),
        2: Attempt(2, quick_record(draw(SEED, 2)), "f" * 64, 1.0),
    }

    report = build_corpus(store, SEED, 4, Here(changed), make=quick_record)

    reasons = {failure.subject: failure.reason for failure in report.failures}
    assert reasons == {"scenario 0": "estimate_ticks is nan", "scenario 2": OTHER_VERSION}
    assert [record.idx for record in stored(store)] == [1, 3]


def interrupted(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    yield from map(task, indices[:2])
    raise KeyboardInterrupt


def broken(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    yield from map(task, indices[:2])
    raise RuntimeError


def test_an_interrupt_keeps_what_was_found(store: CorpusStore) -> None:
    report = build_corpus(store, SEED, 5, interrupted, make=quick_record)

    assert (report.interrupted, report.stored, report.new, len(stored(store))) == (True, 2, 2, 2)
    with pytest.raises(RuntimeError):
        build_corpus(store, SEED, 5, broken, make=quick_record)
    assert len(stored(store)) == 4


def test_a_store_that_is_locked_in_the_middle_is_reported(store: CorpusStore) -> None:
    def locked(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
        yield task(0)
        with closing(sqlite3.connect(store.path)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield task(1)

    store.connection.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(StoreError, match="is locked"):
        build_corpus(store, SEED, 3, locked, make=quick_record)

    assert [record.idx for record in stored(store)] == [0]


def test_progress_begins_with_what_is_stored(store: CorpusStore) -> None:
    build_corpus(store, SEED, 2, Here(), make=quick_record)
    reported: list[tuple[str, int, int]] = []
    build_corpus(store, SEED, 4, Here(), lambda *words: reported.append(words), make=quick_record)

    assert [words for words in reported if words[0] == "corpus"] == [("corpus", done, 4) for done in (2, 3, 4)]


def test_one_worker_is_this_process(store: CorpusStore) -> None:
    report = build_corpus(store, SEED, 3, on_this_machine(1), make=failing_record)

    assert (report.stored, len(report.failures)) == (2, 1)


def summary(report: BuildReport) -> tuple[int, int, int]:
    return report.stored, report.new, report.runs


@pytest.mark.slow
def test_processes_find_what_one_finds(store: CorpusStore, tmp_path: Path) -> None:
    with open_store(tmp_path / "other.db", engine_version()) as other:
        one = build_corpus(store, SEED, 8, on_this_machine(1), make=quick_record)
        two = build_corpus(other, SEED, 8, on_this_machine(2), make=quick_record)

        assert summary(one) == summary(two) == (8, 8, 16)
        assert stored(store) == stored(other) and store.keys(SEED) == other.keys(SEED)


@pytest.mark.slow
def test_a_process_that_dies_costs_one_scenario(store: CorpusStore) -> None:
    report = build_corpus(store, SEED, 8, on_this_machine(2), make=deadly_record)

    assert [(failure.subject, failure.reason) for failure in report.failures] == [(f"scenario {DIES}", DIED)]
    assert report.stored == 7


BUILDER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from magus.advisor.training.build import build_corpus
from magus.advisor.training.record import engine_version
from magus.advisor.training.build import on_this_machine
from magus.advisor.training.store import open_store
from tests.helpers.corpus import slow_record
if __name__ == "__main__":
    with open_store(Path({path!r}), engine_version()) as store:
        build_corpus(store, 4, 40, on_this_machine({workers}), make=slow_record)
"""


def num_stored(path: Path) -> int:
    try:
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("SELECT count(*) FROM scenarios").fetchone()[0])
    except sqlite3.Error:  # it is being made
        return 0


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux has them")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_build_that_is_killed_goes_on_where_it_was(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "store.db"
    script = BUILDER.format(root=str(ROOT), path=str(path), workers=workers)
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 120
        while num_stored(path) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        own = children(process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 60
    while any(map(alive, own)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, own)), "no process is left behind"

    with open_store(path, engine_version()) as store:
        kept = num_stored(path)
        assert 5 <= kept < 40
        assert all(record == quick_record(drawn) for drawn, record in some(records_of(store, SEED)))
        again = Here()
        report = build_corpus(store, SEED, 40, again, make=quick_record)
        assert len(again.requested) == 40 - kept == report.new
        assert store.num_runs(store.keys(SEED)) == 80


def test_a_backend_is_not_requested_for_nothing(store: CorpusStore) -> None:
    def never(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
        raise AssertionError
        yield

    backend: Backend = never
    build_corpus(store, SEED, 2, Here(), make=quick_record)

    assert build_corpus(store, SEED, 2, backend, make=quick_record).stored == 2
