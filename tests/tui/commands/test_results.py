"""Results on disk: the commands that keep them, what turns them off, and the same text from them."""

from pathlib import Path

import pytest

from magus.examples import path as example
from magus.simcore.memo.memo import current_store
from tests.helpers.commands import magus

SMALL = example("decode_small_batch")
TRACE = SMALL.parent / "traces" / "llama70b_tp8.json"
PACKETS = ("--granularity", "packet")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAGUS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MAGUS_NO_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "words",
    [
        ("simulate", SMALL, *PACKETS),
        ("simulate", SMALL, *PACKETS, "--json"),
        ("test", SMALL, "--workers", "1"),
        ("advise", SMALL, "--top", "2", "--bespoke", "20", "--workers", "1"),
        ("advise", SMALL, "--top", "2", "--bespoke", "20", "--workers", "1", "--json"),
        ("replay", TRACE, "--no-advise"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_command_says_the_same_again(words: tuple[str, ...], folder: Path) -> None:
    first = magus(*words)
    kept = sorted(folder.rglob("*"))
    again = magus(*words)

    assert kept
    assert (again.exit_code, again.stdout, again.stderr) == (first.exit_code, first.stdout, first.stderr)
    assert sorted(folder.rglob("*")) == kept
    assert current_store() is None


@pytest.mark.parametrize("words", [("--no-cache",), ()])
def test_nothing_is_kept_where_that_is_said(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGUS_NO_CACHE", "" if words else "1")

    assert magus("simulate", SMALL, *PACKETS, *words).exit_code == 0
    assert not folder.exists()


def test_commands_that_do_not_simulate_keep_nothing(folder: Path) -> None:
    for words in (("check",), ("plan",), ("schedules", "--limit", "1"), ("fmt", "--check")):
        assert magus(words[0], SMALL, *words[1:]).exit_code == 0
    assert not folder.exists()


def test_a_folder_that_cannot_be_used_costs_no_answer(folder: Path) -> None:
    folder.write_text("mine")

    assert magus("simulate", SMALL, *PACKETS).exit_code == 0
    assert folder.read_text() == "mine"


def test_results_are_kept_for_no_command_that_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.mgs"
    mine.write_text(SMALL.read_text())

    for words in (("--svg", mine), ("--granularity", "byte"), ("--svg", tmp_path / "none" / "out.svg")):
        assert magus("simulate", mine, *words).exit_code
        assert current_store() is None
