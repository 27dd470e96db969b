"""``magus train``: what it says of a model that it has fitted, and of tables, stores and folders that are of no use."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from magus.advisor.corpus.build import build_corpus
from magus.advisor.learned.model_file import FILE, load
from magus.advisor.learned.table import ANYWHERE, Labels, load_table, save_table
from magus.tui.commands.models import corpus
from magus.tui.exit_codes import Exit
from tests.helpers.commands import document, magus
from tests.helpers.corpus import serial_record


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a few drawn scenarios."""
    monkeypatch.setattr(corpus, "build_corpus", partial(build_corpus, make=serial_record))
    path = tmp_path / "store.db"
    document("corpus", path, "--scenarios", "3", "--workers", "1")
    return path


def test_a_store_becomes_a_table_and_a_model(store: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "table.npz", tmp_path / "model"
    words = (table, "--out", out, "--workers", "1")

    text = magus("train", *words, "--store", store)
    again = document("train", *words)

    assert text.exit_code == Exit.DONE and table.exists()
    assert text.stdout.endswith(f"written to {out / FILE}\n") and " of 6 scenarios" in text.stdout
    assert (again["schema"], again["searched"], again["labelled"]) == ("magus-train/1", 3, 6)
    assert load(out)[1].structures == again["structures"]


def test_a_model_is_the_same_again(store: Path, tmp_path: Path) -> None:
    table, models = tmp_path / "table.npz", [tmp_path / "a", tmp_path / "b"]
    magus("train", table, "--store", store, "--out", models[0], "--workers", "1")
    magus("train", table, "--out", models[1])

    assert (models[0] / FILE).read_bytes() == (models[1] / FILE).read_bytes()


def test_a_table_is_the_same_again(store: Path, tmp_path: Path) -> None:
    table, words = tmp_path / "table.npz", ("--out", tmp_path / "model", "--workers", "1")
    magus("train", table, "--store", store, *words)
    made = table.read_bytes()
    winners = load_table(table).winners
    fewer = replace(load_table(table), winners=tuple(each for each in winners if each.idx != ANYWHERE))
    assert len(fewer.winners) < len(winners)
    lost = replace(fewer, labels=tuple(_without_labels(each) for each in fewer.labels))
    save_table(lost, table)

    done = magus("train", table, "--again", *words)

    assert done.exit_code == Exit.DONE and table.read_bytes() == made


def _without_labels(labels: Labels) -> Labels:
    return replace(labels, winners=np.zeros(1, np.int64), ticks=np.ones(1))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("none.npz",), "cannot read"),
        (("none.npz", "--again"), "cannot read"),
        (("table.npz", "--store", "none.db"), "there is no store"),
        (("file.txt",), "is no table"),
        (("file.txt", "--out", "file.txt/model"), "file.txt"),
    ],
)
def test_what_is_of_no_use_is_told(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    (tmp_path / "file.txt").write_text("no table")
    placed = [word if word.startswith("--") else tmp_path / word for word in words]

    done = magus("train", *placed)

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    assert why in done.stderr and "Traceback" not in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"file.txt"}, "nothing was written"


def test_a_table_of_other_code_is_refused(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table.npz"
    magus("train", table, "--store", store, "--out", tmp_path / "a", "--workers", "1")
    monkeypatch.setattr("magus.advisor.learned.train.keys.fingerprint", lambda: "other")

    done = magus("train", table, "--out", tmp_path / "b")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    assert "of another simulator or estimate" in done.stderr and not (tmp_path / "b").exists()


def test_a_table_without_labels_is_refused(store: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.npz"
    magus("train", table, "--store", store, "--out", tmp_path / "a", "--workers", "1")
    arrays = dict(np.load(table))
    np.savez(table, **{**arrays, "ticks": np.full_like(arrays["ticks"], np.inf)})

    done = magus("train", table, "--out", tmp_path / "b")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "") and "is no table" in done.stderr


@pytest.mark.parametrize("words", [(), ("t.npz", "--store", "s.db", "--again")])
def test_mistakes_of_usage(words: tuple[str, ...]) -> None:
    assert magus("train", *words).exit_code == Exit.USAGE


def test_documents_are_json(store: Path, tmp_path: Path) -> None:
    done = magus("train", tmp_path / "t.npz", "--store", store, "--out", tmp_path, "--workers", "1", "--json")

    assert json.loads(done.stdout)["file"] == str(tmp_path / FILE)
