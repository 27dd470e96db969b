"""The report on a graph: figures are those of ``simulate --json``, and ops are told by name."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.chromium import CHROMIUM, opened
from tests.helpers.commands import document, magus
from tests.helpers.hostile_text import is_safe
from tests.helpers.scenarios.graph_runs import TEXT

LARGE = ("--set", "M=2048")  # where overlap pays
FEW = TEXT.replace("repeat 40", "repeat 8") + "\nexplore mlp { engine dma(3); chunks 8 }\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    (folder / "mlp.mgs").write_text(FEW)
    done = magus("report", folder / "mlp.mgs", "-o", folder / "out.html", "--bespoke", "0", "--workers", "1", *LARGE)
    assert done.exit_code == 0, done.output
    return folder / "out.html"


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="advice">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def test_figures_are_those_of_simulate(page: Path) -> None:
    data, text = data_of(page), page.read_text()
    by_name = {each["name"]: each["result"] for each in data["candidates"] if each["result"] is not None}

    assert data["schema"] == "magus-advice/1"
    assert {"serial", "pairs", "whole"} <= set(by_name)
    for name in ("serial", "pairs", "whole"):
        found, unit = by_name[name], {128: "line", 1024: "packet"}[by_name[name]["unit_bytes"]]
        alone = document("simulate", page.parent / "mlp.mgs", "--schedule", name, "--granularity", unit, *LARGE)
        assert found["layers"] == alone["layers"] and found["ops"] == alone["ops"]
        assert f">{found['layers']['makespan_us']:.1f}<" in text
    times = {name: each["layers"]["makespan_us"] for name, each in by_name.items()}
    gain = data["speedup_vs_serial"]
    assert gain == pytest.approx(times["library"] / times[data["recommended"]]) and gain > 1.01


def test_ops_are_reported_by_name_with_the_block_of_the_schedule(page: Path) -> None:
    text = page.read_text()

    for name in ("u_norm", "u", "y", "y_add"):
        assert f"<td>{name}</td>" in text
    assert "schedule whole for mlp {" in text and "separate y by dma(3)" in text
    assert "To the same scale, the baseline: the library." in text
    assert "What this rests on" in text
    assert all(escape(reason) in text for reason in data_of(page)["reasons"])


@pytest.mark.slow
def test_text_of_the_file_is_text(tmp_path: Path) -> None:
    file = tmp_path / "mlp.mgs"
    file.write_text(TEXT.replace("an MLP", "<b onload=x>MLP</b>"))

    done = magus("report", file, "-o", tmp_path / "out.html", "--workers", "1", "--no-verify")

    assert done.exit_code == 0, done.output
    text = (tmp_path / "out.html").read_text()
    assert "&lt;b onload=x&gt;MLP" in text and "<b onload" not in text
    assert is_safe(done.output)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_has_nothing_to_say(page: Path, tmp_path: Path) -> None:
    assert not opened(page, tmp_path).console
