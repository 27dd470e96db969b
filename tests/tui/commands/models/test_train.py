"""``magus train``: what it says of a model that it has fitted, and of tables, stores and folders that are of no use."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from magus.advisor.learned.model_file import FILE, load
from magus.advisor.training.build import build_corpus
from magus.advisor.training.table import ANYWHERE, Labels, load_table, save_table
from magus.tui.commands import models
from magus.tui.text.door import Exit
from tests.helpers.commands import document, magus
from tests.helpers.corpus import serial_record


@dataclass(frozen=True)
class Made:
    """A store of a few drawn scenarios, and what the command made of it."""

    store: Path
    table: Path
    model: Path
    said: Result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Made once; no test writes there."""
    folder = tmp_path_factory.mktemp("made")
    store, table, model = folder / "store.db", folder / "table.npz", folder / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "build_corpus", partial(build_corpus, make=serial_record))
        document("corpus", store, "--scenarios", "2", "--workers", "1")
    return Made(store, table, model, magus("train", table, "--store", store, "--out", model, "--workers", "1"))


@pytest.mark.slow
def test_a_store_becomes_a_table_and_a_model(made: Made, tmp_path: Path) -> None:
    again = document("train", made.table, "--out", tmp_path, "--workers", "1")

    assert made.said.exit_code == Exit.DONE and made.table.exists()
    assert made.said.stdout.endswith(f"written to {made.model / FILE}\n") and " of 4 scenarios" in made.said.stdout
    assert (again["schema"], again["searched"], again["labelled"]) == ("magus-train/1", 2, 4)
    assert load(tmp_path)[1].structures == again["structures"] and again["file"] == str(tmp_path / FILE)
    assert (made.model / FILE).read_bytes() == (tmp_path / FILE).read_bytes(), "the same again"


def test_a_table_is_the_same_again(made: Made, tmp_path: Path) -> None:
    table = tmp_path / "table.npz"
    winners = load_table(made.table).winners
    fewer = replace(load_table(made.table), winners=tuple(each for each in winners if each.idx != ANYWHERE))
    assert len(fewer.winners) < len(winners)
    lost = replace(fewer, labels=tuple(_without_labels(each) for each in fewer.labels))
    save_table(lost, table)

    done = magus("train", table, "--again", "--out", tmp_path / "model", "--workers", "1")

    assert done.exit_code == Exit.DONE and table.read_bytes() == made.table.read_bytes()


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
def test_what_is_of_no_use_is_reported(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    (tmp_path / "file.txt").write_text("no table")
    placed = [word if word.startswith("--") else tmp_path / word for word in words]

    done = magus("train", *placed)

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    assert why in done.stderr and "Traceback" not in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"file.txt"}, "nothing was written"


def test_a_table_of_other_code_is_refused(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.advisor.training.train.keys.fingerprint", lambda: "other")

    done = magus("train", made.table, "--out", tmp_path / "b")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "")
    assert "of another simulator or estimate" in done.stderr and not (tmp_path / "b").exists()


def test_a_table_without_labels_is_refused(made: Made, tmp_path: Path) -> None:
    table = tmp_path / "table.npz"
    arrays = dict(np.load(made.table))
    np.savez(table, **{**arrays, "ticks": np.full_like(arrays["ticks"], np.inf)})

    done = magus("train", table, "--out", tmp_path / "b")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "") and "is no table" in done.stderr


@pytest.mark.parametrize("words", [(), ("t.npz", "--store", "s.db", "--again")])
def test_mistakes_of_usage(words: tuple[str, ...]) -> None:
    assert magus("train", *words).exit_code == Exit.USAGE
