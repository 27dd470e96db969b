"""Every command and snippet of the README and of the first pages runs, and what they show is what comes out."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import TOPOLOGIES
from magus.compiler.planning.build import declared
from magus.compiler.text.names import shipped_libraries
from tests.helpers.commands import magus
from tests.helpers.paths import ROOT
from tests.helpers.plans.documents import schedule_hash
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("compiled_core", "kept_results", "one_model")
README = (ROOT / "README.md").read_text()
FIRST_PAGES = README + "".join((ROOT / "docs" / name).read_text() for name in ("start.md", "commands.md", "answers.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str, text: str = README) -> list[str]:
    return [body for found, body in BLOCK.findall(text) if found == language]


def shell_commands(text: str = FIRST_PAGES) -> list[str]:
    lines = [line.split("#")[0].strip() for body in blocks("sh", text) for line in body.splitlines()]
    return [line for line in lines if line]


# What test_examples.py runs too, or another command of the README with other options.
LONG = (
    "magus test examples/papers/gemm_ar_mi355x.mgs",
    "magus advise examples/decode_small_batch.mgs",
    "magus advise examples/llama70b_tp8_mi300x.mgs",
    "magus advise examples/gemm_rs_h100.mgs",
    "magus advise examples/steps/llama3_70b_128.mgs",
    "magus ask --model llama-3.1-8b --gpu h100 --train --gpus 16 --for torchtitan",
)
# In place of commands that take many seconds: the same file with the same values, or with fewer or smaller ones.
SHORTER = {
    "magus sweep examples/gemm_rs_h100.mgs --set M=1024..4096 --no-verify": (
        "magus sweep examples/gemm_rs_h100.mgs --set M=1024 --no-verify"
    ),
    "magus sweep examples/llama70b_tp8_mi300x.mgs --set M=1024..8192 --no-verify": (
        "magus sweep examples/llama70b_tp8_mi300x.mgs --set M=16..32 --no-verify"
    ),
}
COMMANDS = list(dict.fromkeys(command for command in shell_commands() if command.startswith("magus")))


def words_of(command: str) -> list[str]:
    """What follows ``magus``; simulations in this process, which changes nothing but the time."""
    words = shlex.split(command)[1:]
    return [*words, "--workers", "1"] if words[0] in ("advise", "test") else words


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=pytest.mark.slow) if each in (*LONG, *SHORTER) else each for each in COMMANDS]
    + list(SHORTER.values()),
)
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # what a command writes is not left in the checkout
    monkeypatch.chdir(tmp_path)

    done = magus(*words_of(command))

    assert done.exit_code == 0, done.output
    assert "internal error" not in done.stderr


def test_what_is_shortened_is_in_the_readme() -> None:
    assert set(SHORTER) <= set(COMMANDS)


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = [command.split()[1] for command in shell_commands(README) if command.startswith("make")]

    assert targets == ["demo", "check"]
    subprocess.run(["make", "--dry-run", *targets, "docs"], cwd=ROOT, check=True, capture_output=True)


def test_every_command_of_the_readme_is_of_a_known_kind() -> None:
    assert {command.split()[0] for command in shell_commands()} == {"make", "magus", "pip"}


def test_the_readme_is_one_page() -> None:
    assert len(README.splitlines()) <= 150


def test_the_scenarios_of_the_first_pages_compile() -> None:
    names = [compile_text(text).scenario().case.shape.name for text in blocks("mgs", FIRST_PAGES)]

    assert names == ["mlp_up", "mlp_down"]


@pytest.mark.parametrize("name", ["language.md", "schedules.md", "plans.md", "steps.md"])
def test_the_scenarios_of_the_documents_compile(name: str) -> None:
    texts = [body for language, body in BLOCK.findall((ROOT / "docs" / name).read_text()) if language == "mgs"]

    assert texts
    for text in texts:
        compile_text(text, path=str(ROOT / "docs" / name))


@pytest.mark.slow
def test_the_commands_on_plans_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    bodies = [body for language, body in BLOCK.findall((ROOT / "docs" / "plans.md").read_text()) if language == "sh"]
    body = "".join(bodies)

    for command in some(body.splitlines()):
        done = magus(*words_of(command))
        assert done.exit_code == 0, done.output


def test_the_plans_of_the_document_are_what_it_says() -> None:
    page = (ROOT / "docs" / "plans.md").read_text()
    (text,), (shown,) = ([body for found, body in BLOCK.findall(page) if found == kind] for kind in ("mgs", "json"))
    scenario = compile_text(text, path=str(ROOT / "docs" / "plans.md")).scenario().case
    own, saved, theirs = (declared(scenario, named) for named in scenario.schedules)

    assert shown == (ROOT / "docs" / "plans" / "direct.json").read_text()
    assert schedule_hash(scenario, saved) == schedule_hash(scenario, own)
    assert theirs.by_rank and not saved.by_rank


def test_the_snippet_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")

    exec(compile(code, "README.md", "exec"), {})

    assert capsys.readouterr().out.startswith("overlap ")


@pytest.mark.slow
def test_the_examples_for_runtimes_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "runtimes.md").read_text()
    code = "\n".join(body for language, body in BLOCK.findall(text) if language == "python")

    exec(compile(code, "docs/runtimes.md", "exec"), {})

    shown = capsys.readouterr().out.splitlines()
    assert (
        shown[0] == "worth_trying"
        and "chunks=" in shown[-2]
        and shown[-1] == "MGS203 gpu: unknown GPU 'H10'; did you mean 'H100'?"
    )


@pytest.mark.slow
def test_the_example_for_models_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "ask.md").read_text()
    (code,) = [body for language, body in BLOCK.findall(text) if language == "python"]

    exec(compile(code, "docs/ask.md", "exec"), {})

    assert capsys.readouterr().out.startswith("None ")


@pytest.mark.slow
def test_the_questions_about_models_are_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "ask.md").read_text()
    monkeypatch.chdir(tmp_path)  # they write files
    printed = re.findall(r"^<!-- output of: ([^\n]*) -->\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = [line for language, body in BLOCK.findall(text) if language == "sh" for line in body.splitlines()]

    assert [magus(*words_of(command)).stdout for command, _ in printed] == [shown for _, shown in printed]
    assert len(printed) == 2 and len(commands) == 10
    answers = [magus(*words_of(each)) for each in commands]
    assert [each.exit_code for each in answers] == [0] * 10
    assert all(5 <= len([line for line in each.stdout.splitlines() if line]) <= 12 for each in answers[:7])


@pytest.mark.slow
def test_the_step_of_the_document_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "steps.md").read_text()
    command, shown = re.findall(r"^<!-- output of: ([^\n]*) -->\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    monkeypatch.chdir(ROOT)

    assert magus(*words_of(command)).stdout == shown


@pytest.mark.slow
def test_the_example_for_layers_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "layers.md").read_text()
    (code,) = [body for language, body in BLOCK.findall(text) if language == "python"]
    monkeypatch.chdir(ROOT)

    exec(compile(code, "docs/layers.md", "exec"), {})

    assert any(line.startswith("dx ") for line in capsys.readouterr().out.splitlines())


def test_the_worked_example_of_the_simulator_is_right() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text()
    (code,) = [body for language, body in BLOCK.findall(text) if language == "python"]

    exec(compile(code, "docs/simulator.md", "exec"), {})


def test_the_output_shown_is_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = next(body for body in blocks("text", FIRST_PAGES) if "Lower bound" in body)
    monkeypatch.chdir(ROOT)

    done = magus(*words_of("magus advise examples/llama70b_tp8_mi300x.mgs --full"))

    assert done.stdout.splitlines() == shown.splitlines()


def test_the_answer_of_the_readme_is_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks("text", README)
    monkeypatch.chdir(ROOT)

    assert magus(*words_of("magus advise examples/llama70b_tp8_mi300x.mgs")).stdout == shown
    assert len(shown.splitlines()) <= 20


def test_the_list_of_codes_is_complete() -> None:
    listed = re.findall(r"^\| (MGS\d+) \| (.*) \|$", (ROOT / "docs" / "diagnostics.md").read_text(), re.MULTILINE)

    assert listed == [(code.name, code.value) for code in Code]


def test_the_table_of_fabrics_has_every_topology_with_its_arguments() -> None:
    page = (ROOT / "docs" / "language.md").read_text()
    table = page.partition("| fabric | meaning |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", table, re.MULTILINE)
    # Arguments as they are written, without their values; names of links may follow where a topology takes them.
    written = {name: re.findall(r"(?:^|, )([a-z_]\w*)", arguments) for name, arguments in rows}

    assert list(written) == [topology.name for topology in TOPOLOGIES]
    for topology in TOPOLOGIES:
        named = [argument.name for argument in topology.arguments]
        shown = written[topology.name]
        assert shown[: len(named)] == named
        assert bool(shown[len(named) :]) is topology.takes_links


def test_the_table_of_implementations_has_every_shipped_one() -> None:
    page = (ROOT / "docs" / "language.md").read_text()
    table = page.partition("| shipped | patterns | predicted |\n")[2].partition("\n\n")[0]
    shipped = [name for name in shipped_libraries() if name.startswith("implementations/")]

    assert sorted(re.findall(r"`(implementations/\w+)`", table)) == shipped


def test_the_warnings_shown_are_those_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "machines.md").read_text()
    command, shown = re.findall(r"^<!-- output of: ([^\n]*) -->\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    monkeypatch.chdir(ROOT)

    done = magus(*words_of(command))

    assert done.stderr == shown


def test_the_tree_shown_is_that_of_the_import() -> None:
    page = (ROOT / "docs" / "machines.md").read_text()
    shown = page.partition("<!-- a part of the output of: magus import tests/")[2].partition("```text\n")[2]

    assert shown.partition("```")[0] in (ROOT / "tests/golden/machines/rtx4090_topo.txt.mgs").read_text()
