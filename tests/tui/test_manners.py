"""What a command line is expected to do: --version, -h, completion, stdin as -, colours and widths as asked for."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.testing import Result
from typer.core import TyperArgument
from typer.testing import CliRunner

from magus import __version__
from magus.examples import path as example
from magus.tui.cli import VERBS, app, built
from magus.tui.text.door import in_colour, is_rich, say
from tests.tui.app.test_terminal import terminal
from tests.tui.test_hostile_text import FILE

CLI = ("-m", "magus.tui.cli")


def magus(*words: str | Path, stdin: str | bytes | None = None, **environment: str) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=environment)


def test_the_version_is_said() -> None:
    done = magus("--version")

    assert (done.exit_code, done.stdout, done.stderr) == (0, f"magus {__version__}\n", "")


@pytest.mark.parametrize("verb", [(), *((verb,) for verb in VERBS)])
def test_h_is_help(verb: tuple[str, ...]) -> None:
    short, long = magus(*verb, "-h"), magus(*verb, "--help")

    assert (short.exit_code, short.stdout) == (0, long.stdout) and "Usage: " in short.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_commands_says_what_the_help_of_each_begins_with(verb: str) -> None:
    reported = " ".join(magus("-h", COLUMNS="120").stdout.split())

    assert f" {verb} {VERBS[verb].help} " in f"{reported} "
    assert built(verb).get_short_help_str(limit=200) == VERBS[verb].help


def test_the_help_says_what_arguments_are() -> None:
    arguments = {verb: [each for each in built(verb).params if isinstance(each, TyperArgument)] for verb in VERBS}
    helps = {verb: " ".join(magus(verb, "-h", COLUMNS="120").stdout.split()) for verb in VERBS}

    unsaid = [verb for verb, found in arguments.items() for each in found if f" {each.help} " not in helps[verb] + " "]
    assert not unsaid and sum(map(len, arguments.values())) >= 15
    assert all(text.lower().count("arguments: ") == bool(arguments[verb]) for verb, text in helps.items()), "said once"
    assert " FILE A scenario, FILE.mgs; - reads it from stdin. [required] " in helps["advise"]


@pytest.mark.parametrize("words", [(), ("nosuch",), ("advise",), ("advise", "a.mgs", "--nosuch")])
def test_a_mistake_of_usage_is_reported_on_stderr(words: tuple[str, ...]) -> None:
    done = magus(*words)

    assert (done.exit_code, done.stdout) == (2, "") and "Usage: " in done.stderr


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("adivse", "a.mgs"), "No such command 'adivse'; did you mean 'advise'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
        (("--", "--check"), "No such option '--check'. Did you mean '--help'?"),
    ],
)
def test_a_command_that_is_like_one_is_named(words: tuple[str, ...], reported: str) -> None:
    assert magus(*words).stderr.splitlines()[-1] == f"Error: {reported}"


@pytest.mark.parametrize(
    ("typed", "wanted"), [("magus sched", "schedules"), ("magus simulate --gran", "--granularity")]
)
def test_a_shell_can_complete_what_is_typed(typed: str, wanted: str) -> None:
    environment = os.environ | {
        "_MAGUS_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    script = "import sys; sys.argv = ['magus']; from magus.tui.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)

    assert done.stdout.split() == [wanted], done.stderr


@pytest.mark.parametrize("verb", ["check", "test", "simulate", "plan", "schedules", "advise"])
def test_a_dash_is_stdin(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "a.mgs"
    file.write_text(FILE)
    words = ("--no-verify",) if verb == "advise" else ()

    by_file, by_dash = magus(verb, file, *words), magus(verb, "-", *words, stdin=FILE)

    assert by_file.exit_code == by_dash.exit_code == 0, by_dash.stderr
    answers = [done.stdout.partition("\nNext:\n") for done in (by_dash, by_file)]
    assert answers[0][0].split() == answers[1][0].replace(str(file), "<stdin>").split()
    assert [bool(then) for _, _, then in answers] == [verb == "advise"] * 2


@pytest.mark.parametrize("verb", ["check", "test", "simulate", "plan", "schedules", "advise", "fmt"])
@pytest.mark.parametrize("text", [b"workload {\n", b"", b"\xff", b"a\0b", b"# " + b"x" * (2 << 20)])
def test_what_is_wrong_on_stdin_is_reported_of_stdin(verb: str, text: bytes) -> None:
    done = magus(verb, "-", stdin=text)

    assert (done.exit_code, done.stdout) == (1, "") or (verb == "fmt" and text == b"")
    assert "<stdin>:1:" in done.stderr or verb == "fmt"


def test_fmt_of_stdin_goes_to_stdout_to_the_letter() -> None:
    text = FILE.replace("param M", "# \u200f \x1b\nparam   M").lstrip("\n")
    done = magus("fmt", "-", stdin=text)

    assert (done.exit_code, done.stderr) == (0, "")
    assert "# \u200f \x1b\nparam M = 256" in done.stdout
    assert magus("fmt", "-", stdin=done.stdout).stdout == done.stdout
    assert (
        magus("fmt", "--check", "-", stdin=text).exit_code,
        magus("fmt", "--check", "-", stdin=done.stdout).exit_code,
    ) == (1, 0)


def test_stdin_includes_files_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.mgs").write_text(FILE)

    assert magus("check", "-", stdin='include "a.mgs"\n').exit_code == 0
    assert "MGS207" in magus("check", "-", stdin='include "../a.mgs"\n').stderr


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, StringIO])
def test_messages_fit_the_terminal(stream: type[StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, path = stream(), "/a/path/that/has/no/space/" + "and-is-longer-than-a-line-of-the-terminal/" * 2
    text = f"magus: {path}: there is no folder of that name on this machine\n  help: {'word ' * 20}".rstrip()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("COLUMNS", "80")

    say(text)

    lines = stderr.getvalue().splitlines()
    assert " ".join(stderr.getvalue().split()) == " ".join(text.split()) and any(path in line for line in lines)
    fits = all(len(line) <= 80 for line in lines if path not in line)
    assert fits is (stream is Terminal) and (not fits or lines[-1].startswith("    word"))


class Stream:
    def __init__(self, terminal: bool) -> None:
        self.isatty = lambda: terminal


@pytest.mark.parametrize(
    ("terminal", "variables", "rich", "colour"),
    [
        (True, {}, True, True),
        (False, {}, False, False),
        (True, {"NO_COLOR": "1"}, True, False),
        (True, {"NO_COLOR": ""}, True, True),
        (True, {"TERM": "dumb"}, False, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    terminal: bool, variables: dict[str, str], rich: bool, colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert (is_rich(Stream(terminal)), in_colour(Stream(terminal))) == (rich, colour)  # type: ignore[arg-type]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("variables", "sign"),
    [({"NO_COLOR": ""}, b"\x1b[31m"), ({"NO_COLOR": "1"}, b"\x1b["), ({"TERM": "dumb"}, b"\x1b")],
)
def test_a_terminal_gets_the_colours_that_it_asks_for(tmp_path: Path, variables: dict[str, str], sign: bytes) -> None:
    (tmp_path / "a.mgs").write_text("workload {\n")
    with terminal(*CLI, "check", tmp_path / "a.mgs", **variables) as screen:
        assert screen.end() == 1
    assert (sign in screen.seen) == (variables == {"NO_COLOR": ""})


@pytest.mark.slow
def test_a_dumb_terminal_sees_no_move_of_the_cursor(tmp_path: Path) -> None:
    (tmp_path / "a.mgs").write_text(FILE)
    with terminal(*CLI, "advise", "--no-verify", tmp_path / "a.mgs", TERM="dumb") as screen:
        assert screen.end() == 0
    assert b"\x1b" not in screen.seen and b"\r" not in screen.seen.replace(b"\r\n", b"")


@pytest.mark.slow
def test_the_screen_is_refused_where_it_cannot_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "a.mgs").write_text(FILE)
    with terminal(*CLI, "tui", tmp_path / "a.mgs", TERM="dumb") as screen:
        assert screen.end() == 2
    assert b"magus tui needs a terminal" in screen.seen and b"\x1b" not in screen.seen
    done = subprocess.run(
        [sys.executable, *CLI, "tui", tmp_path / "a.mgs"], stdin=subprocess.DEVNULL, capture_output=True
    )
    assert (done.returncode, b"magus tui needs a terminal" in done.stderr, b"\x1b" in done.stderr) == (2, True, False)


def test_a_line_of_code_fits_the_terminal_with_its_carets(tmp_path: Path) -> None:
    (tmp_path / "a.mgs").write_text(f"let a = {'1 + ' * 40}nosuch(2){' + 1' * 40}\n")
    with terminal(*CLI, "check", tmp_path / "a.mgs", COLUMNS="60", TERM="dumb") as screen:
        assert screen.end() == 1
    lines = screen.seen.decode().splitlines()
    at = next(index for index, line in enumerate(lines) if set(line.strip()) == {"^"})

    assert len(lines[at - 1]) <= 60 and lines[at - 1][lines[at].index("^") :].startswith("nosuch")


@pytest.mark.quick(3)
@pytest.mark.parametrize("columns", [40, 60, 120, 200])
@pytest.mark.parametrize(
    "words", [("simulate", "--seeds", "2", "--granularity", "packet"), ("schedules",), ("advise", "--no-verify")]
)
def test_text_fits_the_width_that_is_requested_for(
    words: tuple[str, ...], columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.mgs").write_text(example("decode_small_batch").read_text())  # a command to copy has the name of the file
    done = magus(words[0], "a.mgs", *words[1:], COLUMNS=str(columns))
    lines = done.stdout.splitlines()

    assert done.exit_code == 0
    assert max(map(len, lines)) <= columns
    assert columns > 60 or max(map(len, lines)) > columns - 12, "the width is used"
