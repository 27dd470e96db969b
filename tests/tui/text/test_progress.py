"""Progress: a line that is rewritten for a person, lines that stay for everybody else, with the time left."""

import io
import sys
from threading import Event

import pytest

from magus.compiler.ir import makes_code
from magus.tui.text import progress
from magus.tui.text.progress import CLEAR, ProgressState, duration_text, progress_line
from tests.helpers.some import some


class Stderr(io.StringIO):
    """A stderr that is a terminal or not, and tells when a line came."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.line = terminal, Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self.line.set()
        return written


def stderr(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, term: str = "xterm") -> Stderr:
    stream = Stderr(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def test_a_person_sees_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = stderr(monkeypatch, terminal=True)
    times = iter(range(100))
    with progress_line(lambda: float(next(times))) as report:
        report("simulate", 0, 10)
        report("simulate", 5, 10)

    first, second = "4 of 6: simulating the shortlist 0/10 ...", "4 of 6: simulating the shortlist 5/10 ... about "
    assert seen.getvalue().startswith(f"{CLEAR}{first}{CLEAR}{second}") and seen.getvalue().endswith(f" left{CLEAR}")
    assert "\n" not in seen.getvalue()


def test_a_line_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = stderr(monkeypatch, terminal=True)
    monkeypatch.setenv("COLUMNS", "40")
    with progress_line() as report:
        report("bespoke", 10**30, 10**30)

    assert all(len(part) < 40 for part in some(seen.getvalue().split(CLEAR)))


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_without_a_terminal_there_are_lines_that_stay(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, term: str
) -> None:
    seen = stderr(monkeypatch, terminal=terminal, term=term)
    monkeypatch.setattr(progress, "EVERY_S", 0.001)
    with progress_line() as report:
        assert not seen.line.wait(0.01), "nothing to say yet"
        report("simulate", 3, 10)
        assert seen.line.wait(60)

    lines = seen.getvalue().splitlines()
    assert lines[0].startswith("4 of 6: simulating the shortlist 3/10 ... (") and lines[0].endswith(" so far)")
    assert "\x1b" not in seen.getvalue() and "\r" not in seen.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_who_waits_for_the_compiler_reads_so(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    seen = stderr(monkeypatch, terminal=terminal)
    monkeypatch.setattr(progress, "REWRITTEN_EVERY_S" if terminal else "EVERY_S", 0.001)
    makes_code.set()
    try:
        with progress_line():
            assert seen.line.wait(60)
    finally:
        makes_code.clear()

    assert "compiling the simulator, once for this installation ..." in seen.getvalue()


def test_what_is_quick_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = stderr(monkeypatch, terminal=False)
    monkeypatch.setattr(progress, "EVERY_S", 1e6)
    with progress_line() as report:
        report("simulate", 3, 10)

    assert seen.getvalue() == ""


def test_the_time_left_follows_the_pace_of_the_stage() -> None:
    begun = ProgressState("", 0, 0, 0, 0.0).moved("draw", 10, 110, 100.0)
    later = begun.moved("draw", 30, 110, 140.0)

    assert begun.left_s(100.0) is None
    assert later.left_s(140.0) == 160.0
    assert later.text(140.0) == "drawing scenarios 30/110 ... about 3 min left"
    assert later.moved("fit", 0, 1, 150.0).text(200.0) == "fitting the model ..."
    assert later.moved("run", 10**6, 0, 150.0).left_s(200.0) is None
    assert later.moved("draw", 110, 110, 300.0).text(300.0) == "drawing scenarios 110/110 ..."


def test_searches_are_reported_with_the_rate_of_this_run() -> None:
    begun = ProgressState("", 0, 0, 0, 0.0).moved("corpus", 900, 3000, 100.0)

    assert begun.text(100.0) == "searching scenarios 900/3000 ..."
    assert begun.moved("corpus", 930, 3000, 220.0).text(220.0) == (
        "searching scenarios 930/3000, 15 a minute ... about 2 h left"
    )
    assert begun.moved("corpus", 3000, 3000, 1e6).text(1e6) == "searching scenarios 3000/3000, 0.126 a minute ..."


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (9000, "2 h")]
)
def test_times_are_spelled_in_their_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_stage_of_an_answer_is_counted_and_never_counted_back() -> None:
    placed = ProgressState("", 0, 0, 0, 0.0).moved("place", 0, 1, 1.0)
    searching = placed.moved("bespoke", 0, 2, 2.0)
    again = searching.moved("joint", 26, 0, 3.0)

    texts = [each.text(4.0).partition(":")[0] for each in (placed, searching, again)]
    assert texts == ["1 of 6", "4 of 6", "4 of 6"]
