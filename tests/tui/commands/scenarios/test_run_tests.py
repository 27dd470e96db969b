"""``magus test``: what is printed for each statement, and the JSON document."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from magus.tui.cli import app

FILE = """
use "amd/mi300x"
param M = 256 in 8..2048 x2
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = uniform_fused_1d(chunks=16, engine=dma(3))
expect up with M = 512 {
  mine.makespan > 1 us published "up to 3.9x, and a remark that is so long that it goes on in the next line"
  mine.makespan < 1 us
  show mine.link_bytes / mine.makespan
}
expect up { sweep M in 8..2048 x2 { mine.makespan > 1 us; show mine.hbm_bytes } }
"""


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["test", *map(str, words)])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.mgs").write_text(FILE)
    return Path("a.mgs")


def test_every_statement_is_printed_with_what_was_found_and_published(file: Path) -> None:
    done = run(file)

    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[0] == "ok     a.mgs:12: mine.makespan > 1 us with M = 512"
    assert lines[1].startswith("       left is ")
    assert lines[2].startswith("       published: up to 3.9x, and ")
    assert "FAILED a.mgs:13: mine.makespan < 1 us with M = 512" in lines
    assert any(line.startswith("shown  a.mgs:14: show") for line in lines)
    assert lines[-1] == "a.mgs: 1 passed, 3 failed, 1 shown"
    assert max(map(len, lines)) <= 80


def test_the_points_of_a_sweep_are_printed(file: Path) -> None:
    file.write_text(FILE.replace("8..2048", "64..2048"))

    lines = run(file).stdout.splitlines()

    at = lines.index("ok     a.mgs:16: mine.makespan > 1 us for M in 64..2048 x2")
    assert lines[at + 1] == "       holds at all 6 points"
    assert lines[at + 2].startswith("       M 64: ")
    assert not any(line.endswith(":") for line in lines), "a value stays beside its point"


def test_a_point_where_a_schedule_does_not_fit_fails_the_statement(file: Path) -> None:
    assert "at M = 8: mine does not fit these sizes" in run(file).stdout


def test_the_json_document_has_numbers_with_units(file: Path) -> None:
    file.write_text(FILE.replace("8..2048", "64..2048"))

    done = run(file, "--json")

    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"]) == (1, "magus-test/1")
    (found,) = document["files"]
    assert (found["file"], found["passed"], found["failed"], found["shown"]) == ("a.mgs", 2, 1, 2)
    first, _, shown, _, traffic = found["statements"]
    assert first["standing"] == "passed" and first["bindings"] == {"M": "512"}
    assert first["published"].startswith("up to 3.9x")
    assert first["values"]["left"]["unit"] == "us" and first["values"]["left"]["value"] > 1
    assert (shown["standing"], shown["values"]["value"]["unit"], shown["sweep"]) == ("shown", "GB/s", None)
    assert traffic["sweep"]["param"] == "M"
    points = traffic["sweep"]["points"]
    assert [point["setting"] for point in points] == ["64", "128", "256", "512", "1024", "2048"]
    assert all(isinstance(point["values"]["value"]["value"], int) for point in points)


def test_a_file_that_is_wrong_does_not_stop_the_others(file: Path) -> None:
    Path("bad.mgs").write_text(FILE.replace("gemm(", "gem("))

    done = run("bad.mgs", file, "--json")

    assert done.exit_code == 1
    assert "MGS204" in done.stderr
    assert [each["file"] for each in json.loads(done.stdout)["files"]] == ["a.mgs"]


def test_a_file_without_expectations_says_so(file: Path) -> None:
    file.write_text(FILE[: FILE.index("expect")])

    done = run(file)

    assert done.exit_code == 0
    assert "no expect block has a statement" in done.stderr
