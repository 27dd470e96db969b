"""``magus plan`` and ``magus run`` on a file with a graph, and ``magus simulate`` on the plan of a file."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import document, magus
from tests.helpers.scenarios.mlp_backward import TEXT

pytestmark = pytest.mark.usefixtures("compiled_core")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "back.mgs"
    sizes = {"width": 256, "inner": 1024, "both": 2048}
    path.write_text("mgs 1\n" + TEXT.format(m=1024, ranks=4, layers=8, **sizes))
    return path


def test_a_block_that_is_pasted_is_the_same_schedule(file: Path) -> None:
    block = magus("plan", file, "--schedule", "late")
    assert block.exit_code == 0
    assert block.stdout.startswith("# late\nschedule plan_1 for back {\n  dh = ")
    expected = document("simulate", file, "--schedule", "late", "--granularity", "packet")
    file.write_text(file.read_text() + block.stdout)

    found = document("simulate", file, "--schedule", "plan_1", "--granularity", "packet")

    assert found["layers"] == expected["layers"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("schedule", ["late", "serial"])
def test_a_plan_in_a_file_takes_as_long_as_its_schedule(file: Path, tmp_path: Path, schedule: str) -> None:
    out = tmp_path / "p.json"
    assert magus("plan", file, "--schedule", schedule, "--format", "json", "-o", out).exit_code == 0
    by_name, by_plan = (
        document("simulate", file, "--schedule", each, "--granularity", "packet") for each in (schedule, out)
    )

    assert by_plan["schedule"] == str(out)
    assert by_plan["layers"] == by_name["layers"]
    assert by_plan["ops"] == by_name["ops"]
    assert json.loads(out.read_text())["scenario"]["layers"] == 5


def test_too_few_layers_show_no_period(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    assert magus("plan", file, "--format", "json", "--layers", "2", "-o", out).exit_code == 0

    done = magus("simulate", file, "--schedule", out, "--granularity", "packet")

    assert done.exit_code == 1
    assert "the plan has 2 of 8 layers" in " ".join(done.output.split())


def test_a_plan_that_is_read_is_written_again(file: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert magus("plan", file, "--schedule", "ring", "--format", "json", "-o", one).exit_code == 0
    assert magus("plan", file, "--schedule", one, "--format", "json", "-o", two).exit_code == 0

    first, second = (json.loads(path.read_text()) for path in (one, two))

    assert second["hash"] == first["hash"]
    assert magus("plan", file, "--schedule", one).exit_code == 2


def test_run(file: Path, tmp_path: Path) -> None:
    done = magus("run", file, "--seeds", "1")
    assert done.exit_code == 0
    assert "late\n  exact on 4 ranks, 2 layers: 96 copies, 56 kernels, 8 sums; seed 0\n" in done.stdout
    assert "pairs\n  exact" in done.stdout and "ring\n  exact" in done.stdout

    out = tmp_path / "p.json"
    assert magus("plan", file, "--schedule", "late", "--format", "json", "--layers", "1", "-o", out).exit_code == 0
    found = document("run", file, "--schedule", out, "--seeds", "1")
    assert found["exact"] is True and found["workload"] == "back"
    assert [(one["schedule"], one["layers"]) for one in found["schedules"]] == [(str(out), 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "--schedule", "absent"], 1, "no schedule 'absent'"),
        (["run", "--schedule", "absent.json"], 1, "MGS120"),
        (["plan", "--schedule", "absent.json", "--format", "json"], 1, "MGS120"),
        (["plan", "--format", "triton"], 1, "MGS520"),
        (["plan", "--layers", "0"], 2, "--layers"),
    ],
)
def test_what_is_wrong_is_reported(file: Path, words: list[str], code: int, message: str) -> None:
    done = magus(words[0], file, *words[1:])

    assert done.exit_code == code
    assert message in done.output and "Traceback" not in done.output
