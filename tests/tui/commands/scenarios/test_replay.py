"""``magus replay``: a step of a trace as measured, as simulated, as it could be, and its scenario."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from magus.advisor import Advice, Advisor
from magus.advisor.measured.traces.replay import read_step
from magus.compiler.ir import Scenario
from magus.compiler.text.diagnostics import Report
from magus.examples import path
from magus.tui.text.step import replay_document, replay_text
from tests.helpers.commands import document, magus
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.paths import ROOT
from tests.helpers.traces import document as trace_of
from tests.helpers.traces import sharded_layer
from tests.helpers.tui import fakes

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model", "kept_results")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "step.json"
    file.write_text(json.dumps(trace_of(sharded_layer(1, 1_700_000_000.0))))
    return file


@pytest.mark.slow
def test_measured_simulated_and_possible(trace: Path) -> None:
    shown = magus("replay", trace)
    found = document("replay", trace)

    assert shown.exit_code == 0, shown.output
    assert [line.split("  ")[0] for line in shown.stdout.splitlines()[2:5]] == [
        "as measured",
        "as simulated",
        "as it could be",
    ]
    assert found["schema"] == "magus-replay/1"
    times = [found[f"{each}_us"] for each in ("possible", "simulated", "measured")]
    assert all(isinstance(each, float) for each in times)
    assert times[0] < times[1]  # type: ignore[operator]


def test_what_is_advised_is_what_it_could_be(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recommend(advisor: Advisor, scenario: Scenario, *options: object, **watched: object) -> Advice:
        fast = fakes.candidate("in_turn", 1.0, 1.0, 128)
        return replace(fakes.advice(scenario.cases[0]), recommended=fast)

    monkeypatch.setattr(Advisor, "recommend", recommend)
    shown, found = magus("replay", trace), document("replay", trace)

    assert shown.exit_code == 0, shown.output
    assert "as it could be" in shown.stdout
    assert (found["possible_us"], found["parts"][0]["schedule"]) == (1.0, "in_turn")  # type: ignore[index]


def test_its_scenario_is_one_like_others(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.mgs"
    done = magus("replay", trace, "--no-advise", "-o", out)

    assert (done.exit_code, done.stderr) == (0, f"{out}: workload step, 7 ops\n")
    assert "as it could be" not in done.stdout
    assert magus("fmt", "--check", out).exit_code == 0
    simulated = document("simulate", out, "--schedule", "as_it_ran", "--granularity", "packet")
    replayed = document("replay", trace, "--no-advise")
    assert simulated["makespan_us"] == pytest.approx(replayed["simulated_us"], rel=1e-6)
    parts = replayed["parts"]
    assert isinstance(parts, list)
    assert (replayed["possible_us"], [part["schedule"] for part in parts]) == (None, [None])


def test_the_example_is_what_is_written(tmp_path: Path) -> None:
    out = tmp_path / "step.mgs"
    magus("replay", ROOT / "examples/traces/llama70b_tp8.json", "--no-advise", "-o", out)
    (about,) = re.findall('  about ".*"\n', path("papers/trace").read_text())

    assert path("papers/trace").read_text().replace(about, "").startswith(out.read_text())


def test_the_gaps_between_kernels_decide_what_the_example_expects(tmp_path: Path) -> None:
    text, file = path("papers/trace").read_text(), tmp_path / "without.mgs"
    file.write_text(re.sub(r", after=[\d.]+ us", "", text))
    whole, without = magus("test", path("papers/trace"), "--workers", "1"), magus("test", file, "--workers", "1")

    assert whole.exit_code == 0 and "1 passed, 0 failed" in whole.stdout
    assert without.exit_code == 1 and "0 passed, 1 failed" in without.stdout


def test_what_is_recommended_may_be_slower_than_how_it_ran(trace: Path) -> None:
    """Kernels of a run share SMs, to which no profile is fitted: its order is never recommended."""
    report = Report()
    with report.attempt():
        step = read_step(trace, trace.name, "", None, report)
        result = step.simulated()
        case = step.parts[0].scenario.cases[0]
        slow = [replace(fakes.advice(case), recommended=fakes.candidate("in_turn", 9e9, 9e9, 128))]
        found, text = replay_document(step, result, slow), replay_text(step, result, slow)
        assert (found["possible_us"], found["parts"][0]["schedule"]) == (found["simulated_us"], "as_it_ran")
        assert "1.00x  as it ran: nothing recommended is faster" in text


def test_parts_of_a_long_step_are_told_together(tmp_path: Path) -> None:
    file, out, report = tmp_path / "step.json", tmp_path / "step.mgs", Report()
    file.write_text(
        json.dumps(trace_of([each for n in range(15) for each in sharded_layer(n, 1_700_000_000.0 + 1500 * n)]))
    )
    done = magus("replay", file, "--no-advise", "-o", out)
    assert (done.exit_code, done.stderr) == (0, f"{out}: workload step_1 to step_2, 105 ops\n")
    assert magus("fmt", "--check", out).exit_code == 0
    with report.attempt():
        step = read_step(file, file.name, "", None, report)
        results = step.simulated()
        case = step.parts[0].scenario.cases[0]
        fast = [replace(fakes.advice(case), recommended=fakes.candidate("in_turn", 1.0, 1.0, 128))]
        found, text = replay_document(step, results, fast), replay_text(step, results, fast)
        assert [part["schedule"] for part in found["parts"]] == ["in_turn", "as_it_ran"]
        assert found["possible_us"] == pytest.approx(1.0 + results[1].makespan_us + step.parts[1].gap_us)
        assert found["simulated_us"] == pytest.approx(found["possible_us"] - 1.0 + results[0].makespan_us)
        assert "1 of 2 parts by schedules that are faster, as simulated" in text
    assert not report.diagnostics
    assert not report.diagnostics


def test_of_a_gpu_that_the_trace_does_not_name(trace: Path) -> None:
    text = json.loads(trace.read_text())
    trace.write_text(json.dumps({**text, "deviceProperties": []}))

    assert "MGS604" in magus("replay", trace, "--no-advise").stderr
    assert "8 x H200" in magus("replay", trace, "--no-advise", "--gpu", "h200").stdout


@pytest.mark.parametrize("content", ["", "{}", "[1]", "nonsense", "\x00", '{"traceEvents": 3', EVERYTHING])
def test_what_is_no_trace(tmp_path: Path, content: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(content)
    done = magus("replay", file, "--no-advise")

    assert done.exit_code == 1
    assert done.stderr.count("error:") == 1 and "MGS630" in done.stderr
    assert is_safe(done.stderr)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    done = magus("replay", file)

    assert (done.exit_code, done.stderr) == (
        1,
        f"{file}:1:1: MGS120 error: cannot read '{file}': No such file or directory\n",
    )


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    done, imported = magus("replay", tmp_path), magus("import", tmp_path)

    assert done.stderr == f"{tmp_path}:1:1: MGS120 error: '{tmp_path}' is a folder, not a file\n" == imported.stderr


def test_a_trace_that_is_cut_off(trace: Path) -> None:
    trace.write_text(trace.read_text()[:-400])
    done = magus("replay", trace, "--no-advise")

    assert done.exit_code == 0
    assert "the trace ends early" in " ".join(done.stdout.split())
