"""``magus corpus``: what it says of a build, and of a store or a scheduler that is of no use."""

import json
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

import pytest

from magus.advisor.training.build import Attempt, Task, build_corpus
from magus.advisor.training.families import draw
from magus.tui.commands import models
from magus.tui.text.door import Exit
from tests.helpers.commands import document, magus
from tests.helpers.corpus import FAILS, failing_record, quick_record
from tests.helpers.hostile_text import is_safe
from tests.tui.test_hostile_text import NAME


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(models, "build_corpus", partial(build_corpus, make=quick_record))
    return tmp_path / "store.db"


def fill(store: Path, *words: str) -> dict[str, object]:
    return document("corpus", store, "--workers", "1", *words)


def test_a_store_is_filled_and_gone_on_with(store: Path) -> None:
    first, second = fill(store, "--scenarios", "3"), fill(store, "--scenarios", "5")

    assert first | {"seconds": 0, "per_minute": 0} == {
        "schema": "magus-corpus/1",
        "store": str(store),
        "seed": 0,
        "scenarios": 3,
        "stored": 3,
        "new": 3,
        "failed": 0,
        "failures": [],
        "runs": 6,
        "patterns": first["patterns"],
        "of_other_versions": 0,
        "seconds": 0,
        "per_minute": 0,
        "interrupted": False,
    }
    assert sum(first["patterns"].values()) == 3  # type: ignore[attr-defined]
    assert (second["stored"], second["new"], second["runs"]) == (5, 2, 10)


def test_the_summary_is_text(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "engine_version", lambda: "other")
    fill(store, "--scenarios", "2")
    monkeypatch.undo()
    monkeypatch.setattr(models, "build_corpus", partial(build_corpus, make=failing_record))
    monkeypatch.setenv("COLUMNS", "200")

    done = magus("corpus", store, "--scenarios", "4", "--seed", "1", "--workers", "1")

    first, second, others, failed = done.stdout.splitlines()
    assert done.exit_code == Exit.INPUT
    assert first.startswith(f"{store}: 3 of 4 scenarios of seed 1 are stored, 3 new in ") and "; 1 failed" in first
    assert second.startswith("  6 simulated plans; ")
    assert others == "  ! 2 more are of other versions of Magus: they stay and are not used"
    assert f"scenario {FAILS}: KeyError: 'no such thing'" in failed


def test_ctrl_c_prints_what_is_stored(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
        yield task(indices[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(models.CorpusRequest, "backend", lambda _: interrupted)

    done = magus("corpus", store, "--scenarios", "4", "--json")

    assert done.exit_code == Exit.INTERRUPTED and "the same command goes on" in done.stderr
    found = json.loads(done.stdout)
    assert (found["interrupted"], found["stored"], found["patterns"]) == (True, 1, {draw(0, 0).family.pattern: 1})


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--scenarios", "0"),
        ("--scenarios", "3", "--seed", str(1 << 64)),
        ("--scenarios", "3", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"),
    ],
)
def test_a_mistake_of_usage_is_reported(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = magus("corpus", tmp_path / "store.db", *words)

    assert (done.exit_code, done.stdout) == (Exit.USAGE, "") and not list(tmp_path.iterdir())


def test_a_store_of_no_use_is_reported_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database, but notes\n" * 50)

    done = magus("corpus", tmp_path / "notes.txt", "--scenarios", "3")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    assert done.stderr.startswith("MGS430 error: ") and "\n  help: nothing was changed; " in done.stderr


@pytest.mark.parametrize("folder", ["none/", ""])
def test_paths_that_a_terminal_would_obey_are_shown(store: Path, folder: str) -> None:
    path = store.parent / folder / NAME.decode(errors="surrogateescape")

    done = magus("corpus", path, "--scenarios", "3", "--workers", "1")

    assert done.exit_code == (Exit.INPUT if folder else Exit.DONE)

    assert is_safe(done.stdout) and is_safe(done.stderr)
