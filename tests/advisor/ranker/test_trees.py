import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from magus.advisor.ranker import trees as ranker
from magus.advisor.ranker.boosted_trees import BoostedTrees, ModelError
from magus.advisor.ranker.dataset import Dataset
from magus.advisor.ranker.features import LOG_ESTIMATE_US, NAMES, features_of
from magus.advisor.ranker.train import score_of, train
from magus.advisor.ranker.trees import CARD_FILE, MAX_MODEL_BYTES, ModelCard, Ranker, model_file
from magus.compiler.ir import TICKS_PER_US, Choice, EngineChoice, EngineKind, Scenario, Schedule
from magus.compiler.planning.build import build_schedule
from tests.helpers.scenarios import scenarios as make

CARD = ModelCard("of nothing", 3, 10, 400, (("error_p90", 0.05),))
CHOICES = (
    Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)),
    Choice("uniform_fused_1d", 32, EngineChoice(EngineKind.SM, 16)),
)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random features, and times that exceed the estimate by what two of them say."""
    random = np.random.default_rng(0)
    features = random.random((600, len(NAMES)))
    log_us = features[:, LOG_ESTIMATE_US] + 0.3 * features[:, 4] * features[:, 7]
    return features, np.round(np.exp(log_us) * TICKS_PER_US).astype(np.int64)


@pytest.fixture(scope="module")
def fitted(rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> Ranker:
    return Ranker(Ranker.fit(*rows).trees, CARD)


@pytest.fixture(scope="module")
def saved(fitted: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fitted ranker, which no test changes."""
    folder = tmp_path_factory.mktemp("model")
    fitted.save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it, for one test to damage."""
    return Path(shutil.copytree(saved, tmp_path, dirs_exist_ok=True))


def trees_file(folder: Path) -> Path:
    """The file that the card names."""
    return folder / model_file(json.loads((folder / CARD_FILE).read_text())["sha256"])


def rewrite(folder: Path, data: bytes) -> None:
    """Replace the trees, and the hash in the card with them, as an attacker would."""
    card = json.loads((folder / CARD_FILE).read_text())
    card["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / model_file(card["sha256"])).write_bytes(data)
    (folder / CARD_FILE).write_text(json.dumps(card))


def test_it_learns_the_ratio_to_the_estimate(
    fitted: Ranker, rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
) -> None:
    features, ticks = rows

    error = np.abs(np.log(fitted.predict_matrix(features) * TICKS_PER_US / ticks))

    assert np.median(error) < 0.2 * np.median(np.log(ticks / TICKS_PER_US) - features[:, LOG_ESTIMATE_US])


def schedules_of(scenario: Scenario) -> list[Schedule]:
    return [build_schedule(scenario, choice) for choice in CHOICES]


def test_without_trees_it_says_the_estimate() -> None:
    scenario = make.ag_gemm(2048, 8192, 4096)

    schedules = schedules_of(scenario)

    predicted = Ranker(None).predict_us(scenario, schedules)

    assert predicted == pytest.approx([np.exp(features_of(scenario, each)[LOG_ESTIMATE_US]) for each in schedules])
    assert Ranker(None).predict_us(scenario, ()) == ()
    assert Ranker(None).typical_error is None


def test_a_loaded_model_predicts_the_same(
    fitted: Ranker, folder: Path, rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
) -> None:
    loaded = Ranker.load(folder)

    assert loaded.card == CARD
    assert loaded.typical_error == 0.05
    assert np.array_equal(loaded.predict_matrix(rows[0]), fitted.predict_matrix(rows[0]))


def test_the_same_data_give_the_same_file(
    folder: Path, tmp_path: Path, rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
) -> None:
    again = tmp_path / "again"
    Ranker(Ranker.fit(*rows).trees, CARD).save(again)

    assert trees_file(again).name == trees_file(folder).name
    assert trees_file(again).read_bytes() == trees_file(folder).read_bytes()
    assert (again / CARD_FILE).read_text() == (folder / CARD_FILE).read_text()


def test_the_shipped_model_ranks() -> None:
    scenario = make.ag_gemm(8192, 28672, 8192)
    shipped, same = Ranker.load(), Ranker.load(Path(ranker.__file__).parent / "model")

    schedules = schedules_of(scenario)
    first, again = (each.predict_us(scenario, schedules) for each in (shipped, same))

    assert shipped is not same and first == pytest.approx(again, rel=1e-9)
    assert all(500 < us < 3000 for us in first)
    assert shipped.card is not None and dict(shipped.card.metrics)["top6_regret_mean"] < 0.02


@pytest.mark.parametrize("file", [trees_file, lambda folder: folder / CARD_FILE])
def test_a_missing_file_is_refused(folder: Path, file: Callable[[Path], Path]) -> None:
    missing = file(folder)
    missing.unlink()

    with pytest.raises(ModelError, match=f"cannot read {missing.name}"):
        Ranker.load(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": "other"}', "[" * 100_000, '{"schema": 1e999}'],
)
def test_a_card_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / CARD_FILE).write_text(text)

    with pytest.raises(ModelError):
        Ranker.load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("features", ["other"]),
        ("features", 3),
        ("training", None),
        ("training", {"seed": "x", "scenarios": 1, "runs": 1}),
        ("held_out", {"error": "bad"}),
        ("held_out", {"error": float("nan")}),
        ("sha256", "0" * 64),
        ("sha256", "../../" + "0" * 58),
        ("sha256", None),
    ],
)
def test_a_card_with_a_wrong_entry_is_refused(folder: Path, key: str, value: object) -> None:
    card = json.loads((folder / CARD_FILE).read_text())
    (folder / CARD_FILE).write_text(json.dumps(card | {key: value}))

    with pytest.raises(ModelError):
        Ranker.load(folder)


@pytest.mark.parametrize("rehash", [False, True])
@pytest.mark.parametrize("keep", [0, 100, -100])
def test_a_truncated_model_is_refused(folder: Path, keep: int, rehash: bool) -> None:
    data = trees_file(folder).read_bytes()[:keep]
    trees_file(folder).write_bytes(data)
    if rehash:
        rewrite(folder, data)

    with pytest.raises(ModelError):
        Ranker.load(folder)


def test_a_large_model_is_refused_unread(folder: Path) -> None:
    rewrite(folder, b"\0" * (MAX_MODEL_BYTES + 1))

    with pytest.raises(ModelError, match="larger than"):
        Ranker.load(folder)


def test_training_needs_scenarios_to_hold_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 10 scenarios, got 9"):
        train(tmp_path / "model", scenarios=9)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("seed", range(8))
def test_garbage_inside_is_refused_or_harmless(folder: Path, seed: int) -> None:
    random, data = np.random.default_rng(seed), bytearray(trees_file(folder).read_bytes())
    for place in random.integers(0, len(data), 20 if seed % 2 else 1):
        data[place] = int(random.integers(256))
    rewrite(folder, bytes(data))

    try:
        predicted = Ranker.load(folder).predict_matrix(np.zeros((1, len(NAMES))))
    except ModelError:
        return
    assert np.isfinite(predicted).all()


def other(fitted: Ranker) -> Ranker:
    """Another model of the same data."""
    assert fitted.trees is not None
    nodes = fitted.trees.nodes.copy()
    nodes["value"][0] += 0.25  # the tree that is a lone leaf
    return Ranker(BoostedTrees.of(nodes, len(NAMES)), replace(CARD, seed=4))


@pytest.mark.parametrize("at", range(2))
def test_a_model_that_cannot_be_written_leaves_the_one_before(
    fitted: Ranker, folder: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, real = iter(range(9)), os.replace

    def fails(source: str, target: str) -> None:
        if next(steps) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match=r"No space left on device: .*ranker"):
        other(fitted).save(folder)

    assert Ranker.load(folder).card == CARD


def test_a_reader_meets_one_model_or_the_other(fitted: Ranker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it looks: before and after every step of the writer, also with the card in its hands."""
    seen: list[int] = []

    def watched(real: Callable[..., None]) -> Callable[..., None]:
        def step(*words: object, **more: object) -> None:
            seen.append(seed_of(folder))
            real(*words, **more)
            seen.append(seed_of(folder))

        return step

    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    other(fitted).save(folder)
    assert seen[0] == 3 and seen[-1] == 4 and seen == sorted(seen)

    monkeypatch.undo()
    real_read, turns = ranker.read_bounded, iter([fitted])

    def read(place: Path, name: str, limit: int) -> bytes:
        data = real_read(place, name, limit)
        for one in turns:
            one.save(folder)
        return data

    monkeypatch.setattr(ranker, "read_bounded", read)
    assert seed_of(folder) == 3


def seed_of(folder: Path) -> int:
    card = Ranker.load(folder).card
    assert card is not None
    return card.seed


def test_a_new_model_takes_the_place_of_the_old_one(fitted: Ranker, folder: Path) -> None:
    other(fitted).save(folder)

    assert {each.name for each in folder.iterdir()} == {CARD_FILE, trees_file(folder).name}


def test_a_ranker_without_a_card_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="card"):
        Ranker(None).save(tmp_path)


def test_importing_the_advisor_imports_no_learner() -> None:
    code = (
        "import sys, magus.advisor\n"
        "import magus.advisor.ranker.trees, magus.advisor.ranker.dataset, magus.advisor.ranker.train\n"
        "print([name for name in ('sklearn', 'scipy') if name in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown.strip() == "[]"


@pytest.mark.parametrize("name", ["a file", "a file/model"])
def test_a_folder_that_cannot_be_written_is_told_before_the_training(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magus.advisor.ranker.train.build_dataset", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / "a file").touch()

    with pytest.raises(OSError) as raised:
        train(tmp_path / name, scenarios=10)
    assert str(raised.value.filename).startswith(str(tmp_path / "a file"))


def test_scores_of_a_perfect_and_of_a_reversed_ranking() -> None:
    ticks = np.array([100, 200, 300, 100, 150, 400], np.int64) * TICKS_PER_US
    data = Dataset(np.zeros((6, len(NAMES))), ticks, np.array([0, 0, 0, 1, 1, 1]))

    perfect, reversed_ = score_of(data, ticks / TICKS_PER_US), score_of(data, TICKS_PER_US / ticks)

    assert perfect.error_median == perfect.top1_regret_mean == 0.0
    assert perfect.spearman == pytest.approx(1.0)
    assert reversed_.spearman == pytest.approx(-1.0)
    assert reversed_.top1_regret_mean == 2.5
    assert reversed_.top6_regret_mean == 0.0
