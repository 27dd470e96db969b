"""The terminal that the screen was on is given back, however the program ends, and nothing stays behind."""

import errno
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from magus.tui.app.lifecycle import END_SIGNALS
from tests.helpers.marks import thinned
from tests.tui.test_hostile_text import FILE as FILE  # of the fixture

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"
WAIT_S = 120
CRASHING = """
import sys
from magus.tui.app.app import MagusApp
from magus.tui.cli import main
MagusApp.action_help = lambda self: 1 / 0
main()
"""


class Terminal:
    """A program in a terminal of its own, and all that it sent there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self.master, self.seen = process, master, b""

    def until(self, condition: Callable[[bytes], bool]) -> None:
        """Read what comes until ``condition`` holds of all of it; the end of the program ends the reading too."""
        while not condition(self.seen):
            ready, _, _ = select.select([self.master], [], [], WAIT_S)
            assert ready, f"it never came to that: {self.seen[-2000:]!r}"
            try:
                data = os.read(self.master, 1 << 16)
            except OSError as error:
                assert error.errno == errno.EIO
                return
            if not data:
                return
            self.seen += data

    def end(self) -> int:
        """Read to the end; the exit code."""
        self.until(lambda _: False)
        return self.process.wait(WAIT_S)


@contextmanager
def terminal(*words: str | Path, **environment: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"} | environment
    process = subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=variables,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)
        with suppress(OSError):
            os.close(master)


def left_in_session(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(entry.name))
    return found


def is_given_back(seen: bytes) -> bool:
    return seen.rfind(LEAVES) > seen.rfind(ENTERS) > -1 and seen.rfind(MOUSE_OFF) >= seen.rfind(MOUSE_ON)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
@pytest.mark.parametrize("number", thinned(END_SIGNALS, len(END_SIGNALS)))
def test_a_signal_ends_the_screen_as_q_does(file: Path, number: int) -> None:
    with terminal("-m", "magus.tui.cli", "tui", file) as screen:
        # While its simulations run in other processes.
        screen.until(lambda seen: b"simulation" in seen or b"simulating" in seen or b"OVERLAP" in seen)
        os.kill(screen.process.pid, number)

        assert screen.end() == 128 + number
        assert is_given_back(screen.seen)
        for _ in range(100):
            if not left_in_session(screen.process.pid):
                break
            select.select([], [], [], 0.1)
        assert left_in_session(screen.process.pid) == []


def test_a_signal_at_the_very_beginning(file: Path) -> None:
    with terminal("-m", "magus.tui.cli", "tui", file) as screen:
        screen.until(lambda seen: ENTERS in seen)
        os.kill(screen.process.pid, signal.SIGTERM)

        assert screen.end() == 128 + signal.SIGTERM
        assert is_given_back(screen.seen)


def test_a_crash_gives_the_terminal_back(file: Path) -> None:
    with terminal("-c", CRASHING, "tui", file) as screen:
        screen.until(lambda seen: b"Candidates" in seen)
        os.write(screen.master, b"?")

        assert screen.end() == 1
        assert is_given_back(screen.seen) and b"ZeroDivisionError" in screen.seen
