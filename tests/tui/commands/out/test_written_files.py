"""Files that commands write: looked for before the work, replaced aloud, and never one that the command reads."""

from pathlib import Path

import pytest

from magus.examples import path as example
from magus.tui.cli import VERBS, built
from magus.tui.verbs.options import OutFile
from tests.helpers.commands import magus

FILE = example("gemm_rs_h100")


@pytest.mark.parametrize(
    "words",
    [
        ("advise", FILE, "--svg"),
        ("ask", "--model", "llama-3.1-8b", "--gpu", "h100", "--for", "vllm", "-o"),
        ("calibrate", "--data", ".", "--gpu", "h100", "--write"),
        ("distill", "AG+GEMM", "--gpu", "h100", "-o"),
        ("export", FILE, "--to", "policy", "-o"),
        ("from-model", "config.json", "--gpu", "h100", "-o"),
        ("import", FILE, "-o"),
        ("plan", FILE, "-o"),
        ("replay", FILE, "-o"),
        ("report", FILE, "-o"),
        ("simulate", FILE, "--record-writes"),
        ("sweep", FILE, "--plot"),
        ("validate", "--data", ".", "--write"),
    ],
)
def test_a_folder_that_is_not_there_is_reported_before_the_work(words: tuple[str | Path, ...]) -> None:
    done = magus(*words, "nowhere/out.svg")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "magus: nowhere/out.svg: there is no folder nowhere\n"


def test_every_option_that_names_a_file_to_write_is_checked() -> None:
    names = {"out", "write", "svg", "png", "plot", "trace", "record_writes"}
    options = [option for verb in VERBS if verb != "train" for option in built(verb).params if option.name in names]

    assert len(options) == 18 and all(isinstance(option.type, OutFile) for option in options)


def test_a_file_that_was_there_is_replaced_aloud(tmp_path: Path) -> None:
    out = tmp_path / "schema.json"

    assert magus("plan", "--schema", "-o", out).stderr == f"{out}: the schema of plans\n"
    assert magus("plan", "--schema", "-o", out).stderr == f"{out} (replaced): the schema of plans\n"


@pytest.mark.parametrize("name", ["mine.mgs", "./mine.mgs", "link.mgs"])
def test_a_file_that_is_read_is_not_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.mgs").write_text(FILE.read_text())
    Path("link.mgs").symlink_to("mine.mgs")

    done = magus("plan", "mine.mgs", "--format", "json", "-o", name)

    assert done.exit_code == 2 and f"{Path(name)} is read, and would be lost" in done.stderr
    assert Path("mine.mgs").read_text() == FILE.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("import", "other.json", "mine.json"),
        ("replay", "mine.json", "other.json"),
        ("plan", FILE, "--format", "triton", "--kernel", "mine.json::kernel"),
    ],
)
def test_none_of_several_files_that_are_read_is_written(
    words: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.json", "other.json"):
        Path(name).write_text("{}")

    done = magus(*words, "-o", "mine.json")

    assert done.exit_code == 2 and "mine.json is read, and would be lost" in done.stderr
    assert Path("mine.json").read_text() == "{}"


def test_what_is_typed_wrong_is_told_before_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for out in (tmp_path / "none" / "out.svg", tmp_path / "out.svg"):
        done = magus("simulate", FILE, "--svg", out, "--granularity", "byte")
        assert done.exit_code == 2 and "--granularity" in done.stderr and "no folder" not in done.stderr
