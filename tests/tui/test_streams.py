"""Commands whose stdout or stderr has no reader, is full or is closed; and files that must survive a kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.marks import first, thinned
from tests.tui.test_hostile_text import FILE

COMMAND = (sys.executable, "-m", "magus.tui.cli")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "gemm_h100_sxm.csv").write_text("gpu,m,n,k,dtype,time_us\nH100,512,512,512,bf16,5.0\n")
    return folder


def without_reader(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose stdout nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([*COMMAND, *map(str, words)], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize("more", first([(), ("--json",)], 1))
def test_recorded_writes_need_no_reader_of_the_answer(file: Path, more: tuple[str, ...]) -> None:
    profile = file.with_name("p.csv")

    done = without_reader("simulate", file, "--record-writes", profile, *more)

    assert done.returncode == 0 and done.stderr.endswith(f"{profile}: 12 writes to rank 0\n")
    assert profile.read_text().startswith("time_us,rank,signal,bytes\n")


@pytest.mark.slow
def test_a_page_needs_no_reader_of_the_report(measured: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"

    done = without_reader("validate", "--data", measured, "--sample", "0", "--write", page)

    assert (done.returncode, page.exists()) == (0, True), done.stderr


@pytest.mark.quick(1)
@pytest.mark.parametrize("words", thinned((("plan",), ("advise", "--no-verify"), ("test",)), 2))
def test_an_answer_without_a_reader_is_no_fault(file: Path, words: tuple[str, ...]) -> None:
    done = without_reader(words[0], file, *words[1:])

    assert done.returncode == 0 and "rror" not in done.stderr, done.stderr


def test_files_are_rewritten_though_nobody_reads_of_it(file: Path) -> None:
    other = file.with_name("b.mgs")
    file.write_text(FILE.replace("param M", "param   M"))
    other.write_text(file.read_text())
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "fmt", file, other], stderr=writer)
    os.close(writer)

    assert done.returncode == 0
    assert "param M" in file.read_text() and file.read_text() == other.read_text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_under_stdout_is_reported(file: Path) -> None:
    profile = file.with_name("p.csv")
    with open("/dev/full", "w") as full:
        words = (*COMMAND, "simulate", file, "--record-writes", profile)
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "magus: stdout: No space left on device"
    assert profile.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("--help",), ("check", "--format", "json", "none.mgs")])
def test_a_full_disk_is_no_internal_error(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run((*COMMAND, *words), stdout=full, stderr=subprocess.PIPE, text=True)

    assert (done.returncode, done.stderr) == (1, "magus: stdout: No space left on device\n")


@pytest.mark.slow
def test_an_answer_is_printed_though_its_file_cannot_be_written(file: Path) -> None:
    words = (*COMMAND, "simulate", file, "--record-writes", "/dev/full")
    done = subprocess.run(words, capture_output=True, text=True)

    assert done.returncode == 1 and done.stderr.endswith("magus: /dev/full: No space left on device\n")
    assert "makespan" in done.stdout


@pytest.mark.slow
def test_letters_that_the_terminal_does_not_know_are_escaped(file: Path) -> None:
    file.write_text(FILE.replace("ABOUT", "größer ≈"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = (*COMMAND, "test", file)
    done = subprocess.run(words, capture_output=True, text=True, env=environment)

    assert done.returncode == 0, done.stderr
    assert r"gr\xf6\xdfer \u2248" in done.stdout


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_source_survives_a_kill_of_fmt(file: Path, step: str) -> None:
    text = FILE.replace("param M", "param   M")
    file.write_text(text)
    script = f"""
import os, signal, sys
os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from magus.tui.cli import main
sys.argv = ["magus", "fmt", {str(file)!r}]
main()
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    assert file.read_text() == text


def test_a_source_survives_a_full_disk_under_fmt(file: Path) -> None:
    text = FILE.replace("param M", "param   M")
    file.write_text(text)
    script = f"""
import resource, sys
from magus.tui.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sys.argv = ["magus", "fmt", {str(file)!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, f"magus: {file}: File too large\n")
    assert file.read_text() == text and [each.name for each in file.parent.iterdir()] == ["a.mgs"]
