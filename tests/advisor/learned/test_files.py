"""Files of tables and models: the same again, and refused where they are damaged or not what they say."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from magus.advisor.learned.boosted_trees import ModelError
from magus.advisor.learned.model_file import FILE, MAX_BYTES, Card, load, save
from magus.advisor.learned.proposal_model import ProposalModel
from magus.advisor.training.table import LabelTable, load_table, save_table
from magus.advisor.training.train import check_current
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.scenarios import ag_gemm

KEPT = ROOT / "benchmarks" / "data" / "proposals.npz"
CARD = Card("of nothing", 3, 1, 24, 40, 900)


@pytest.fixture
def folder(model: ProposalModel, tmp_path: Path) -> Path:
    save(model, CARD, tmp_path)
    return tmp_path


def test_a_model_is_the_same_again(model: ProposalModel, folder: Path, tmp_path: Path) -> None:
    again, card = load(folder)

    scenario = ag_gemm(4096, 8192, 8192)
    assert card == CARD
    assert again.propose(scenario, 4) == model.propose(scenario, 4)
    assert len(again.digest) == 64
    save(again, CARD, tmp_path / "other")
    assert (tmp_path / "other" / FILE).read_bytes() == (folder / FILE).read_bytes()


def test_the_table_that_is_kept_is_of_this_code() -> None:
    table = load_table(KEPT)

    check_current(table)
    assert len(table.labels) > 1000 and len(table.winners) > 1000


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(zlib.decompress((folder / FILE).read_bytes()))
    change(document)
    (folder / FILE).write_bytes(zlib.compress(json.dumps(document).encode()))


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(schema="another"),
        lambda document: document.pop("trees"),
        lambda document: document.update(trees="not base64"),
        lambda document: document.update(trees=document["trees"][:-8]),
        lambda document: document["names"].append("another"),
        lambda document: document["deviation"].append(0.0),
        lambda document: document["deviation"].__setitem__(0, float("nan")),
        lambda document: document["deviation"].__setitem__(0, 0.0),
        lambda document: document["before"]["origins"].pop(),
        lambda document: document["after"]["structures"].append(["Structure"]),
        lambda document: document["after"]["structures"][0].__setitem__(1, "no choice"),
        lambda document: document["after"]["structures"][0][1].__setitem__(1, "no_template"),
        lambda document: document["after"]["structures"][0].__setitem__(2, 10**9),
        lambda document: document["after"]["structures"][0].__setitem__(3, float("inf")),
        lambda document: document.update(card=[]),
        lambda document: document.update(errors={"time": [0.1, -0.1], "gain": [0.0, 0.0]}),
        lambda document: document.update(errors={"time": [0.0, 0.0], "gain": [-1000.0, 1000.0]}),
        lambda document: document["deviation"].__setitem__(0, 10**400),
    ],
)
def test_a_model_that_is_none_is_refused(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    changed(folder, change)

    with pytest.raises(ModelError, match=r"damaged|schema"):
        load(folder)


@pytest.mark.parametrize("data", [b"", b"no model", zlib.compress(b"[]"), zlib.compress(b"{"), b"\x80\x04N."])
def test_bytes_that_are_no_model_are_refused(folder: Path, data: bytes) -> None:
    (folder / FILE).write_bytes(data)

    with pytest.raises(ModelError, match=FILE):
        load(folder)


def test_a_cut_off_model_and_a_missing_one_are_refused(folder: Path, tmp_path: Path) -> None:
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[: len(data) // 2])

    with pytest.raises(ModelError, match="damaged"):
        load(folder)
    with pytest.raises(ModelError, match="cannot read"):
        load(tmp_path / "nothing")


def test_a_huge_file_is_refused(folder: Path) -> None:
    (folder / FILE).write_bytes(bytes(MAX_BYTES + 1))

    with pytest.raises(ModelError, match="larger"):
        load(folder)


def test_a_table_is_the_same_again(table: LabelTable, tmp_path: Path) -> None:
    save_table(table, tmp_path / "a.npz")

    again = load_table(tmp_path / "a.npz")

    assert (again.fingerprint, again.seed, again.winners) == (table.fingerprint, table.seed, table.winners)
    assert [row.found for row in again.labels] == [row.found for row in table.labels]
    assert [row.family for row in again.labels] == [row.family for row in table.labels]
    for one, other in zip(again.labels, table.labels, strict=True):
        assert np.array_equal(one.winners, other.winners) and np.array_equal(one.ticks, other.ticks)
        assert np.array_equal(one.situation.values, other.situation.values)
    save_table(again, tmp_path / "b.npz")
    assert load_table(tmp_path / "b.npz").winners == table.winners


@pytest.mark.parametrize("data", [b"", b"no table", b"PK\x03\x04", b"\x80\x04N."])
def test_bytes_that_are_no_table_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(data)

    with pytest.raises(ModelError, match="no table"):
        load_table(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ticks", np.nan),
        ("ticks", -1.0),
        ("winners", 10**6),
        ("winners", -1),
        ("situations", np.nan),
        ("found", np.nan),
        ("found", -1.0),
        ("counts", -1),
    ],
)
def test_a_table_with_numbers_that_none_has_is_refused(
    table: LabelTable, tmp_path: Path, name: str, value: float
) -> None:
    save_table(table, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        arrays = {key: found[key].copy() for key in found.files}
    arrays[name].flat[0] = value
    np.savez(tmp_path / "a.npz", **arrays)

    with pytest.raises(ModelError, match="no table"):
        load_table(tmp_path / "a.npz")


def test_what_follows_a_model_is_no_model(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes() + b"more")

    with pytest.raises(ModelError, match="damaged"):
        load(folder)


@pytest.mark.parametrize(("name", "value"), [("counts", np.array(["a"])), ("situations", np.zeros((24, 3)))])
def test_arrays_of_another_kind_are_refused(
    table: LabelTable, tmp_path: Path, name: str, value: np.ndarray[Any, Any]
) -> None:
    save_table(table, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        arrays = {key: found[key] for key in found.files}
    np.savez(tmp_path / "a.npz", **{**arrays, name: value})

    with pytest.raises(ModelError, match="no table"):
        load_table(tmp_path / "a.npz")


def test_an_array_alone_is_no_table(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))

    with pytest.raises(ModelError, match="no table"):
        load_table(tmp_path / "a.npy")
