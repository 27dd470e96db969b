"""Text from outside on the command line: whatever the terminal would obey is shown, wherever it stands."""

import ast
import json
import os
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from magus.compiler.text.diagnostics import printable
from magus.tui.cli import app
from tests.helpers.hostile_text import ESCAPES, EVERYTHING, is_safe
from tests.helpers.marks import thinned
from tests.helpers.paths import ROOT, TABLE

FILE = """
use "amd/mi300x"
param M = 256 in 8..1024 x2
system pair { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on pair {
  about "ABOUT"
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=16, engine=dma(3))
explore up { chunks 8, 16; engine dma }
expect up { mine.makespan > 1 us published "ABOUT"; show mine.makespan }
"""
VERBS = ("check", "test", "simulate", "run", "plan", "schedules", "advise", "fmt")


def magus(*words: str | Path) -> Result:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert is_safe(found.stdout), found.stdout
    assert is_safe(found.stderr), found.stderr
    return found


def scenario(tmp_path: Path, text: str, name: str = "a.mgs") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.quick(6)
@pytest.mark.parametrize("evil", ESCAPES.values(), ids=ESCAPES)
@pytest.mark.parametrize("verb", ["simulate", "schedules"])
def test_what_a_scenario_says_of_itself(tmp_path: Path, verb: str, evil: str) -> None:
    file = scenario(tmp_path, FILE.replace("ABOUT", evil))

    done = magus(verb, file)

    assert done.exit_code == 0 and done.stdout


@pytest.mark.quick(2)
@pytest.mark.parametrize("json_too", [(), ("--json",)])
@pytest.mark.parametrize("verb", ["test", "advise", "simulate", "schedules"])
def test_answers_on_a_hostile_scenario(tmp_path: Path, verb: str, json_too: tuple[str, ...]) -> None:
    words = ("--no-verify",) if verb == "advise" else ()
    done = magus(verb, scenario(tmp_path, FILE.replace("ABOUT", EVERYTHING)), *words, *json_too)

    assert done.exit_code == 0
    if json_too:
        assert json.loads(done.stdout)["schema"].startswith("magus-")
    elif verb in ("test", "advise"):
        assert r"\x1b[31mred\x1b[0m" in done.stdout and r"\u202eevil\u202c" in done.stdout


NAME = EVERYTHING.replace("/", "|").encode() + b"\xff\n"


@pytest.mark.parametrize("text", [FILE, "workload {", None], ids=["right", "wrong", "missing"])
@pytest.mark.parametrize("verb", VERBS)
def test_names_of_files(tmp_path: Path, verb: str, text: str | None) -> None:
    file = tmp_path / os.fsdecode(NAME)
    if text is not None:
        file.write_text(text)
    words = ("--no-verify",) if verb == "advise" else ()

    done = magus(verb, file, *words)

    assert done.exit_code == (0 if text == FILE else 1)
    said = done.stdout + done.stderr
    assert text == FILE or r"\x1b[31mred" in said


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "text",
    [
        'include "{evil}.mgs"',
        'use "{evil}"',
        'use "amd/{evil}"',
        "workload {evil} on s {{ }}",
        "# {evil}\ngpu {{",
        '"{evil}',
        "let x = {evil}",
        'schedule mine for up = import "{evil}.json"',
        'expect up {{ mine.makespan < 1 us published "{evil}" }}',
        'gpu X {{ line 128 B @measured "{evil}" nosuch }}',
    ],
)
def test_what_stands_in_a_file_that_is_wrong(tmp_path: Path, text: str) -> None:
    for evil in (*ESCAPES.values(), EVERYTHING):
        file = scenario(tmp_path, FILE + text.format(evil=evil) + "\n")

        assert magus("check", file).exit_code in (0, 1)
    json.loads(magus("check", file, "--format", "json").stdout)  # with everything at once


def test_what_stands_in_an_included_file_and_in_its_path(tmp_path: Path) -> None:
    folder = tmp_path / EVERYTHING.replace("/", "|")
    folder.mkdir()
    scenario(folder, 'workload { about "ABOUT"', "part.mgs")
    file = scenario(tmp_path, f'include "{folder.name}/part.mgs"\n{FILE}')

    done = magus("check", file)

    assert done.exit_code == 1 and r"\u202eevil" in done.stderr


@pytest.mark.quick(2)
@pytest.mark.parametrize("evil", thinned(ESCAPES.values(), 3), ids=ESCAPES)
def test_words_of_the_command_line(tmp_path: Path, evil: str) -> None:
    file = scenario(tmp_path, FILE)
    for words, code in (
        ((evil,), 2),
        (("check", f"--{evil}"), 2),
        (("check", file, "--set", evil.replace("=", ":")), 2),
        (("check", file, "--set", f"{evil}=3"), 1),
        (("check", file, "--set", f"M={evil}"), 1),
        (("check", file, "--format", evil), 2),
        (("simulate", file, "--workload", evil), 1),
        (("simulate", file, "--schedule", evil), 1),
        (("simulate", file, "--schedule", f"{evil}.json"), 1),
        (("simulate", file, "--schedule", f"serial({evil})"), 1),
        (("simulate", file, "--record-writes", tmp_path / "none" / evil), 1),
        (("plan", file, "-o", tmp_path / "none" / evil), 1),
        (("plan", file, "-o", tmp_path / evil.replace("/", "|")), 0),
        (("advise", file, "--top", evil), 2),
        (("calibrate", "--data", tmp_path, "--gpu", evil), 1),
        (("calibrate", "--data", tmp_path, "--gpu", "H100", "--from", evil), 1),
        (("validate", "--data", tmp_path / evil), 1),
        (("validate", "--data", tmp_path, "--write", tmp_path / "none" / evil), 1),
        (("train", tmp_path / evil), 1),
        (("train", TABLE, "--out", file / evil), 1),
    ):
        assert magus(*words).exit_code == code, words


@pytest.mark.parametrize("evil", ESCAPES.values(), ids=ESCAPES)
def test_tables_of_measurements(tmp_path: Path, evil: str) -> None:
    plain = evil.replace("/", "|").replace(",", "")
    head, row = "gpu,m,n,k,dtype,time_us", "H100,512,512,512,bf16,5.0"
    for index, text in enumerate(
        (
            f"{head}\n{row}\n{plain},512,512,512,bf16,5.0\nH100,{plain},512,512,bf16,1\nH100,8,8,8,{plain},1\n",
            f"{head},{plain}\n{row},{plain}\n",
            f"{plain}\n{row}\n",
        )
    ):
        folder = tmp_path / f"{plain}{index}"
        folder.mkdir()
        (folder / "gemm_h100_sxm.csv").write_bytes(text.encode())
        (folder / f"gemm_{plain}.csv").write_bytes(text.encode())

        assert magus("validate", "--data", folder, "--sample", "0").exit_code in (0, 1)
        assert magus("calibrate", "--data", folder, "--gpu", "H100").exit_code == 1


def test_a_profile_of_writes(tmp_path: Path) -> None:
    replaying = FILE.replace("full_mesh(xgmi)", 'full_mesh(xgmi); replay "p.csv"')
    for evil in ESCAPES.values():
        (tmp_path / "p.csv").write_bytes(f"time_us,rank,signal,bytes\n{evil},1,x1,8\n1,{evil},{evil},8\n".encode())

        assert magus("simulate", scenario(tmp_path, replaying)).exit_code == 1


def test_carets_stand_under_what_they_mean(tmp_path: Path) -> None:
    for evil in (" \x1b \u202e ", ' "\x9b\u2028" '):
        file = scenario(tmp_path, f'use "amd/mi300x"; let a = {evil}; let b = nosuch(1)\n')

        lines = magus("check", file).stderr.splitlines()

        (at,) = [index for index, line in enumerate(lines) if "nosuch" in line and "MGS" in line]
        code, carets = lines[at + 1], lines[at + 2]
        assert code[carets.index("^") : carets.rindex("^") + 1].startswith("nosuch")


def test_carets_stand_in_the_columns_of_wide_letters(tmp_path: Path) -> None:
    file = scenario(
        tmp_path, 'let a = nosuch("重なり", "é")\nlet b = "重なり"; let c = nosuch(1)\n'.replace("é", "e\u0301")
    )

    lines = magus("check", file).stderr.splitlines()

    below = [line for line in lines if set(line.strip()) == {"^"}]
    assert below[0] == "  " + " " * 8 + "^" * (len('nosuch("", "e")') + 6)
    assert "  " + " " * (len('let b = ""; let c = ') + 6) + "^" * len("nosuch(1)") in below


def test_what_may_be_shown_stays_as_it_is() -> None:
    for text in ("plain", "Ünïcödé 重なり ≈ ★", "a\u00a0b\u3000c", "\N{GRINNING FACE}", r"C:\x1b"):
        assert printable(text) == text
    assert printable("a\nb\tc") == r"a\nb\tc" and printable("a\nb\tc", block=True) == "a\nb\tc"
    assert printable("\x1b\x7f\x85\u202e\ud800\U000e0041") == r"\x1b\x7f\x85\u202e\ud800\U000e0041"


def test_nothing_is_printed_but_through_the_door() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for top in ("grammar", "compiler", "simcore", "runtime", "advisor", "tui")
        for module in (ROOT / top).rglob("*.py")
        for text in [module.read_text(encoding="utf-8")]
        if any(word in text for word in ("print", "stdout", "stderr", "echo"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and module != ROOT / "tui" / "text" / "door.py"
        # What torchrun starts, and ranks, whose stderr is read by who started them, have no door.
        if module.parent != ROOT / "runtime" / "over_torch"
        if ast.unparse(call.func) in ("print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "typer.secho")
    ]

    assert found == []
