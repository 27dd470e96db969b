"""``magus evaluate``: its tables and its document, and a table that cannot be read."""

from pathlib import Path

import pytest

from magus.advisor.training.evaluate import ALL_SPLITS, Evaluation, FourScore, IntervalScore, SplitScore
from magus.advisor.training.ways import MODEL
from magus.tui.commands import models as evaluate
from magus.tui.text.door import Exit
from tests.helpers.commands import document, magus

FOUND = Evaluation(
    (SplitScore("gpu B200", MODEL, 10, 0.5, 0.6, 0.7, 0.02, 0.1, 0.0, 0.0, 0.25, 0.0, 0.01),),
    (IntervalScore("gpu B200", 9, 0.875, 0.105),),
    (FourScore("full mesh", ALL_SPLITS, "FiCCO's rule", 40, 0.725, 0.064, 0.0178),),
)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the evaluation was asked for: limit, seed and workers."""
    calls: list[tuple[object, ...]] = []

    def found(table: object, *requested_for: object) -> Evaluation:
        calls.append(requested_for[:3])
        return FOUND

    monkeypatch.setattr(evaluate, "load_table", lambda path: path)
    monkeypatch.setattr(evaluate, "evaluate", found)
    return calls


def test_the_document_has_all_scores(requested: list[tuple[object, ...]]) -> None:
    printed = document("evaluate", "a.npz", "--limit", "3", "--seed", "5", "--workers", "1")

    assert requested == [(3, 5, 1)]
    assert printed["schema"] == "magus-evaluate/1"
    assert (printed["table"], printed["limit"], printed["seed"]) == ("a.npz", 3, 5)
    splits = [printed[name][0]["split"] for name in ("scores", "intervals", "four")]  # type: ignore[index]
    assert splits == ["gpu B200", "gpu B200", ALL_SPLITS]


def test_the_tables_are_text(requested: list[tuple[object, ...]]) -> None:
    done = magus("evaluate", "a.npz", "--limit", "3")

    assert done.exit_code == Exit.DONE and requested
    assert "gpu B200" in done.stdout and "88%" in done.stdout and "full mesh, FiCCO's rule" in done.stdout


def test_a_table_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    done = magus("evaluate", tmp_path / "none.npz")

    assert (done.exit_code, done.stdout) == (Exit.INPUT, "") and "cannot read" in done.stderr
