"""Commands on a file with a training step: answers, drawings, sweeps and the page; the others name what to ask."""

import csv
import io
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from magus.advisor import advise_step
from magus.compiler import CompileError
from magus.compiler.ir import Progress
from magus.tui.cli import app
from tests.helpers.commands import document, magus
from tests.helpers.steps import TEXT

ALONE = ("--workers", "1")
"""In this process: others take a second to begin."""
SVG = "{http://www.w3.org/2000/svg}"
MORE = """
schedule turns for train { pipeline one_f_one_b; zero 1; overlap gradients, weights }
schedule both for train { pipeline dual; zero 3 }
explore train { TP 1, 2; PP 1, 2; pipeline one_f_one_b, zero_bubble }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "step.mgs"
    path.write_text(TEXT.format(more=MORE))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("schedules",),
        ("plan",),
        ("run", "--on", "torch"),
        ("export", "--to", "policy"),
        ("advise", "--how"),
        ("advise", "--sensitivity"),
        ("advise", "--bespoke", "400"),
        ("advise", "--no-verify"),
        ("simulate", "--seeds", "3"),
        ("simulate", "--granularity", "line"),
        ("simulate", "--no-fold"),
        ("simulate", "--draw", "waterfall", "--svg", "out.svg"),
    ],
)
def test_what_is_not_answered_about_a_step_names_what_is(file: Path, words: tuple[str, ...]) -> None:
    done = magus(words[0], file, *words[1:])

    assert done.exit_code == 1
    line = file.read_text().partition("workload train")[0].count("\n") + 1
    assert done.stderr.startswith(f"{file}:{line}:1: MGS573 error")
    assert "--workload layer" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("words", [("plan",), ("simulate", "--seeds", "3"), ("advise", "--how")])
def test_what_is_not_answered_about_a_step_has_its_place_in_an_included_file(
    file: Path, words: tuple[str, ...]
) -> None:
    outer = file.with_name("outer.mgs")
    outer.write_text(f'include "{file.name}"\n')
    done = magus(words[0], outer, *words[1:])

    line = file.read_text().partition("workload train")[0].count("\n") + 1
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{file}:{line}:1: MGS573 error")


def test_a_schedule_of_a_step_that_does_not_fit_has_its_place_in_an_included_file(file: Path) -> None:
    schedule = "schedule uneven for train { stages 1, 1 }"
    file.write_text(f"{file.read_text()}{schedule}\n")
    outer = file.with_name("outer.mgs")
    outer.write_text(f'include "{file.name}"\n')
    done, line = magus("check", outer), file.read_text().partition(schedule)[0].count("\n") + 1

    assert done.exit_code == 1
    assert done.stderr.startswith(f"{file}:{line}:1: MGS570 error")


def test_a_step_is_carried_out_and_says_what_is_smaller(file: Path) -> None:
    done = magus("run", file, "--schedule", "turns", "--seeds", "1", "--set", "PP=1")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("turns: one_f_one_b zero 1\n  exact on ")
    assert "all sizes of its layers are divided by" in done.stdout


def test_parts_of_one_workload_are_carried_out_one_after_the_other(file: Path) -> None:
    file.write_text(file.read_text().replace("step layer", "step layer then layer"))
    done = magus("run", file, "--schedule", "turns", "--seeds", "1", "--set", "PP=1")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("turns: one_f_one_b zero 1\n  exact on ")


def test_a_step_that_is_not_carried_out_says_why(file: Path) -> None:
    text = file.read_text().replace("[ROWS, 1024]", "[ROWS, 1021]")
    file.write_text(text.replace("[1024, 4096]", "[1021, 4096]").replace("[4096, 1024]", "[4096, 1021]"))
    done = magus("run", file, "--schedule", "both", "--json")

    assert done.exit_code == 1
    (one,) = json.loads(done.stdout)["schedules"]
    assert one["outcome"] == "refused"
    assert one["sentences"][0].startswith("MGS540: the smallest sizes of layer have 8,388,608 elements")
    line = file.read_text().partition("workload train")[0].count("\n") + 1
    assert f"{file}:{line}:1: MGS203 error: unknown schedule" in magus("run", file, "--schedule", "turn").stderr


def test_a_workload_that_is_none_is_not_taken_for_another(file: Path) -> None:
    done = magus("simulate", file, "--workload", "lair")

    assert done.exit_code == 1
    assert "unknown workload 'lair'" in done.stderr
    assert "train" in magus("simulate", file, "--workload", "other").stderr


@pytest.mark.slow
def test_the_layer_is_answered_as_any_workload(file: Path) -> None:
    done = magus("simulate", file, "--workload", "layer", "--granularity", "packet")

    assert done.exit_code == 0, done.output
    assert "makespan" in done.stdout


@pytest.mark.parametrize("schedule", ["turns", "both"])
def test_every_pass_is_drawn_on_its_stage(file: Path, tmp_path: Path, schedule: str) -> None:
    svg, trace = tmp_path / "out.svg", tmp_path / "out.json"
    done = magus("simulate", file, "--schedule", schedule, "--set", "ROWS=1024", "--svg", svg, "--trace", trace)

    assert done.exit_code == 0, done.output
    tree = ElementTree.fromstring(svg.read_text())
    said = [title.text or "" for title in tree.iter(f"{SVG}title")]
    drawn = [each for each in said if " of microbatch " in each]
    events = json.loads(trace.read_text())["traceEvents"]
    passes = [each for each in events if each["ph"] == "X" and "microbatch" in each["args"]]
    figures = document("simulate", file, "--schedule", schedule, "--set", "ROWS=1024")
    assert len(drawn) == len(passes) >= 2 * 2 * int(str(figures["microbatches"]))
    texts = [each.text or "" for each in tree.iter(f"{SVG}text")]
    unit = "us" if float(str(figures["step_s"])) < 0.01 else "s"
    assert all(each.endswith(f" {unit}") for each in drawn) and any(f"times in {unit}" in each for each in texts)
    numbered = any(each.get("text-anchor") == "middle" for each in tree.iter(f"{SVG}text"))
    assert numbered is any("numbers are microbatches" in each for each in texts), "where there are any"
    end = max(each["ts"] + each["dur"] for each in events if each["ph"] == "X")
    assert end == pytest.approx(float(str(figures["step_s"])) * 1e6)
    for stage in (0, 1):
        own = sorted((each["tid"], each["ts"], each["ts"] + each["dur"]) for each in passes if each["pid"] == stage)
        assert all(one[0] != two[0] or one[2] <= two[1] + 1e-6 for one, two in itertools.pairwise(own))


def test_memory_is_drawn_to_scale(file: Path, tmp_path: Path) -> None:
    svg = tmp_path / "out.svg"
    assert magus("simulate", file, "--draw", "loads", "--svg", svg).exit_code == 0

    titled = [each for each in ElementTree.fromstring(svg.read_text()).iter(f"{SVG}rect") if len(each)]
    assert len(titled) == 2 * 6, "two stages of six parts"
    widths = [sum(float(each.get("width", 0)) for each in titled[at : at + 6]) for at in (0, 6)]
    memory = document("simulate", file)["memory_bytes"]
    assert isinstance(memory, list)
    assert widths[0] / widths[1] == pytest.approx(memory[0] / memory[1], rel=1e-3)


def test_a_sweep_has_the_layout_of_each_point(file: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(magus("sweep", file, "--set", "TP=1,2", "--csv", *ALONE).stdout)))
    (_, *lines) = magus("sweep", file, "--set", "TP=1,2").stdout.strip().splitlines()

    assert [row["TP"] for row in rows] == ["1", "2"]
    assert [row["layout"].split()[0] for row in rows] == ["tp1", "tp2"], "what is set is not explored"
    assert [line.split()[:2] for line in lines] == [[row["TP"], f"tp{row['TP']}"] for row in rows]
    alone = document("advise", file, "--set", "TP=2")["recommended"]
    assert isinstance(alone, dict)
    assert float(rows[1]["step_s"]) == pytest.approx(alone["step_s"])


def test_a_layout_that_does_not_divide_is_said_and_the_others_are_swept(file: Path) -> None:
    done = magus("sweep", file, "--set", "TP=2,3", "--csv", *ALONE)

    assert done.exit_code == 1
    assert "MGS311" in done.stderr
    assert [row["TP"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["2"]


def test_the_page_has_the_answer_and_its_drawings(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = magus("report", file, "-o", page, *ALONE)
    text, answer = page.read_text(), document("advise", file)

    assert done.exit_code == 0, done.output
    chosen = answer["recommended"]
    assert isinstance(chosen, dict)
    assert f"{chosen['tokens_per_gpu_s']:,.0f} tokens/s/GPU" in text
    assert text.count("<svg") == 2
    assert f'"step_s": {chosen["step_s"]}' in text


def test_the_answer_from_python_is_that_of_the_command(file: Path) -> None:
    found = advise_step(file.read_text(), settings=(("TP", "2"),))

    assert found.document() == document("advise", file, "--set", "TP=2")
    with pytest.raises(CompileError, match="no training step 'layer'"):
        advise_step(file.read_text(), workload="layer")


@pytest.mark.slow
def test_strict_refuses_a_step_on_a_profile_that_is_not_validated(file: Path) -> None:
    assert magus("simulate", file, "--strict").exit_code == 0
    other = file.with_name("other.mgs")
    other.write_text(file.read_text().replace("nvidia/h100", "nvidia/h800").replace("H100", "H800"))
    for command, *words in (("simulate",), ("advise", *ALONE)):
        done = magus(command, other, "--strict", *words)
        assert done.exit_code == 3
        assert "--strict: the GEMM profile of H800 is not validated" in done.stderr
        assert magus(command, other, *words).exit_code == 0


@pytest.mark.slow
def test_top_is_how_many_layouts_are_shown(file: Path) -> None:
    few, many = (magus("advise", file, "--top", str(count), *ALONE).stdout.splitlines() for count in (1, 6))
    rows = [
        [line for line in lines if "tok/s/GPU" not in line and " GiB" in line and " us " in line]
        for lines in (few, many)
    ]
    assert len(rows[0]) < len(rows[1])
    assert rows[0][0].split() == rows[1][0].split(), "the recommended one is the same"


def test_a_declared_schedule_that_is_recommended_stands_once(file: Path) -> None:
    """The step whose file says what is best has one row for it, with its name and the mark."""
    text = TEXT.format(
        more="schedule turns for train { zero 1; overlap gradients, weights }\nexplore train { zero 1 }\n"
    )
    file.write_text(text)
    lines = magus("advise", file).stdout.splitlines()
    head = next(place for place, line in enumerate(lines) if "tok/s/GPU" in line)
    assert lines[head + 1].startswith("> ") and "turns" in lines[head + 1]
    assert not lines[head + 2].strip()


@pytest.mark.parametrize(("stage", "found"), [("layouts that fit", False), ("layouts", True), ("contention", True)])
def test_a_search_that_is_late_answers_with_what_it_found(
    file: Path, monkeypatch: pytest.MonkeyPatch, stage: str, found: bool
) -> None:
    """The time is over when a stage begins: what is known then is the answer, if there is any."""
    begun: list[str] = []

    @contextmanager
    def reported() -> Iterator[Progress]:
        yield lambda name, done, total: begun.append(name)

    monkeypatch.setattr("magus.tui.commands.answers.step.progress_line", reported)
    monkeypatch.setattr("magus.tui.commands.answers.step.lateness", lambda within_s: lambda: stage in begun)
    done = magus("advise", file, "--within", "5s")

    assert (done.exit_code == 0) is found
    assert ("Stopped early: the best of those" in done.stdout) is found
    assert ("Stopped before any layout was simulated." in done.stdout) is not found
    assert ("> tp" in done.stdout) is found


@pytest.mark.slow
def test_times_of_layers_keep_who_may_stop_them(file: Path) -> None:
    from magus.advisor.steps.layer_times import LayerTimes

    times = LayerTimes()
    before = times.should_stop
    advise_step(file.read_text(), should_stop=lambda: False, times=times)
    assert times.should_stop is before and times.num_simulated > 0


@pytest.mark.parametrize("command", ["advise", "simulate", "report", "check", "run"])
@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("pipeline interleaved(chunks=8)", "mine: some of 16 chunks have no layer: the model has 8"),
        ("stages 3, 3", "mine: the stages have 6 layers, the model 8"),
        ("stages 2, 2, 4", "mine: layers of 3 chunks are said, and there are 2"),
    ],
)
def test_a_schedule_that_cuts_no_layers_so_is_refused_in_its_place(
    file: Path, command: str, schedule: str, message: str
) -> None:
    file.write_text(TEXT.format(more=f"schedule mine for train {{ {schedule} }}"))
    out = ("-o", str(file.with_name("out.html"))) if command == "report" else ()
    done = magus(command, file, *out)

    line = file.read_text().splitlines().index(f"schedule mine for train {{ {schedule} }}") + 1
    assert done.exit_code == 1 and not done.stdout
    assert f"{file}:{line}:1: MGS570 error: {message}" in done.stderr


@pytest.mark.parametrize("said", ["layer 3", "layer serial"])
def test_a_layer_without_a_schedule_is_refused_in_the_schedule_of_a_step(said: str) -> None:
    done = CliRunner().invoke(app, ["check", "-"], input=TEXT.format(more=f"schedule mine for train {{ {said} }}"))

    assert done.exit_code == 1 and "MGS116 error: layer is a workload" in done.stderr
    assert "help: layer = NAME, a schedule of layer" in done.stderr


def test_a_step_on_stdin_is_read_once(file: Path) -> None:
    text = TEXT.format(more="schedule mine for train { stages 3, 3 }")
    line = text.splitlines().index("schedule mine for train { stages 3, 3 }") + 1
    for command in ("check", "run", "simulate", "advise"):
        done = CliRunner().invoke(app, [command, "-"], input=text)
        assert f"<stdin>:{line}:1: MGS570 error: mine: the stages have" in done.stderr


def place_of(file: Path, statement: str = "explore train") -> str:
    """Where the first line that begins so stands."""
    lines = file.read_text().splitlines()
    return f"{file}:{next(n for n, line in enumerate(lines, 1) if line.startswith(statement))}:1"


def test_layouts_of_which_none_divides_say_why(file: Path) -> None:
    file.write_text(TEXT.format(more="explore train { TP 4; PP 2, 4; pipeline interleaved(chunks=16) }"))
    done = magus("advise", file)

    assert done.exit_code == 3
    why = "No layout divides the ranks, the layers and the microbatches"
    assert done.stderr.startswith(f"{place_of(file)}: MGS510 error: no layout of train can be used. {why}\n")
    assert "2 layouts: 2 do not divide" in done.stdout
    said = " ".join(done.stdout.split())
    why = "interleaved(chunks=16): some of 32 chunks have no layer: the model has 8."
    assert f"For instance, with TP = 4, PP = 2: {why}" in said
    assert "no layout divides" in magus("sweep", file, "--set", "ROWS=1024,2048").stdout


def test_layouts_of_which_none_fits_are_said_by_stage(file: Path) -> None:
    file.write_text(TEXT.format(more="explore train { TP 2, 4; memory <= 1 GiB }"))
    done = magus("advise", file)

    assert done.exit_code == 3
    assert (
        f"{place_of(file)}: MGS510 error: no layout of train can be used. No layout fits into memory\n" in done.stderr
    )
    said = " ".join(done.stdout.split())
    assert "No layout fits into memory. The nearest needs" in said and "Of its stages, 1 needs 3." in said
    assert "no layout fits" in magus("sweep", file, "--set", "ROWS=1024,2048").stdout


def test_where_nothing_is_explored_the_step_itself_is_the_place(file: Path) -> None:
    file.write_text(
        TEXT.format(more="")
        .replace("[ROWS, 1024]", "[ROWS, 262144]")
        .replace("1024, 4096", "262144, 65536")
        .replace("4096, 1024", "65536, 262144")
    )
    done = magus("advise", file)

    assert done.exit_code == 3 and done.stderr.startswith(
        f"{place_of(file, 'workload train')}: MGS510 error: no layout"
    )


def test_a_schedule_beyond_memory_is_said_by_stage_with_the_nearest_that_fits(file: Path) -> None:
    text = TEXT.format(
        more="schedule mine for train { zero 0 }\nexplore train { TP 1, 2, 4; zero 0, 1; memory <= 3400 MiB }"
    )
    file.write_text(text.replace("param TP = 2", "param TP = 1"))
    found = " ".join(magus("simulate", file).stdout.split())

    assert "DOES NOT FIT into 3.32 GiB" in found and "Stages: 1 needs 3." in found and ", 2 needs 4." in found
    assert "! the nearest that fits: TP = 4, one_f_one_b, zero 0, keep all" in found
    fitting = magus("simulate", file, "--set", "TP=4").stdout
    assert "fits into 3.32 GiB" in fitting and "nearest" not in fitting
