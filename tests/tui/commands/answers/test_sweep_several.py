"""``magus sweep`` on a graph, with advice that is given and not found."""

import csv
import io
import json
from pathlib import Path

import pytest

from magus.advisor import Advice, AdviceOptions, Advisor
from magus.advisor.policy.reader import Policy
from magus.compiler.ir import Scenario, ShouldStop
from tests.helpers.commands import magus
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.scenarios.mlp_backward import TEXT

pytestmark = pytest.mark.usefixtures("compiled_core")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    sizes = {"width": 256, "inner": 1024, "both": 2048, "ranks": 4, "layers": 2}
    path = tmp_path / "back.mgs"
    path.write_text("param M = 256 in 64..4096 x2\n" + TEXT.format(m="M", **sizes))

    def given(advisor: Advisor, scenario: Scenario, options: AdviceOptions, *, should_stop: ShouldStop) -> Advice:
        """``pairs`` for few rows, ``late`` for more, by times that are those of nobody."""
        pairs, late = scenario.schedules[:2]
        rows = scenario.workload.tensors[0].rows
        return advice_by_hand(scenario, pairs if rows < 512 else late, 10**9, 2 * 10**9)

    monkeypatch.setattr(Advisor, "recommend", given)
    return path


def test_points_rules_and_blocks(file: Path) -> None:
    done = magus("sweep", file, "--set", "M=256..1024")

    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "back: 6 ops, 2 layers on 4 x H100, switch"
    assert [line.split() for line in lines[3:6]] == [
        ["256", "OVERLAP", "10.0", "2.00x", "pairs"],
        ["512", "OVERLAP", "10.0", "2.00x", "late"],
        ["1024", "OVERLAP", "10.0", "2.00x", "late"],
    ]
    assert "Rules, the first that matches wins (flips simulated;" in done.stdout
    assert "schedule late for back {\n  dh = " in done.stdout
    assert all(len(line) <= 80 for line in lines)


def test_as_json_and_csv(file: Path) -> None:
    words = ("sweep", file, "--set", "M=256,512")
    document = json.loads(magus(*words, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(magus(*words, "--csv").stdout)))

    assert document["schema"] == "magus-sweep/2"
    assert [point["schedule"] for point in document["points"]] == ["pairs", "late"]
    assert set(document["points"][0]["schedules_us"]) == {"serial", "pairs", "late"}
    assert [(row["M"], row["schedule"], float(row["us.serial"])) for row in rows] == [
        ("256", "pairs", 20.0),
        ("512", "late", 20.0),
    ]


def test_a_policy_table_is_exported(file: Path) -> None:
    done = magus("export", file, "--set", "M=256,512", "--to", "policy")

    assert done.exit_code == 0, done.output
    rules = json.loads(done.stdout)["rules"]
    assert [rule["schedule"] for rule in rules] == ["pairs", "late"]
    assert Policy(json.loads(done.stdout)).rule(workload="back", gpu="H100", ranks=4, topology="switch", M=512)


def test_a_table_needs_one_size_that_varies(file: Path) -> None:
    done = magus("export", file, "--to", "policy")

    assert done.exit_code == 1
    assert "MGS520 error: a table is about one parameter that varies" in done.stderr


def test_options_are_refused_before_anything_is_simulated(file: Path) -> None:
    done = magus("export", file, "--set", "M=256", "--to", "megatron", "--with", "layer=fc1_fprop")

    assert done.exit_code == 1 and "MGS203 error: megatron has no option 'layer'" in done.stderr
    assert "advising" not in done.stderr


def test_times_of_the_ops_are_exported_as_those_of_pairs_are(file: Path) -> None:
    done = magus("export", file, "--set", "M=1024", "--to", "pge")

    assert done.exit_code == 0, done.output
    events = json.loads(done.stdout)["traceEvents"]
    shapes = {tuple(map(tuple, each["args"]["Input Dims"])) for each in events if each["name"] == "aten::mm"}
    assert {((1024, 256), (256, 256)), ((1024, 512), (512, 256))} <= shapes
