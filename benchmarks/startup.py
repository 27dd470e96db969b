"""Cold start: wall time, CPU time and modules of a process of its own for each command.

``--against PATH`` measures another checkout too, in turns with this one, and adds the ratios of the medians. CPU times
include those of worker processes. Results on disk are used by the commands that are run *again* alone. The first
process of each command and tree is not counted: it may have to write bytecode, machine code and results.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from .harness.checkouts import HERE, environment, trees
from .harness.report import Figure, parser_of, tell

EXAMPLE = "examples/llama70b_tp8_mi300x.mgs"
SMALL = "examples/decode_small_batch.mgs"

COMMAND = """
import sys
{without}
from magus.tui.cli import main
try:
    main()
finally:
    print(len(sys.modules), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of ``magus``; ``wall_s`` is the target of its wall time, if it has one.

    One that is run ``again`` finds the results on disk that the process before it kept. ``without`` is a package that
    is not found.
    """

    words: tuple[str, ...]
    wall_s: float | None = None
    again: bool = False
    without: str = ""

    @property
    def name(self) -> str:
        """What it is called in the figures."""
        without = f", without {self.without}" if self.without else ""
        return f"magus {' '.join(self.words)}{', again' if self.again else ''}{without}"

    @property
    def code(self) -> str:
        """The program that runs it."""
        return COMMAND.format(without=f"sys.modules[{self.without!r}] = None" if self.without else "")


COMMANDS = (
    Command(("--help",), 0.1),
    Command(("check", EXAMPLE), 0.35),
    Command(("fmt", "--check", EXAMPLE)),
    Command(("plan", SMALL)),
    Command(("simulate", SMALL, "--granularity", "packet")),
    Command(("schedules", EXAMPLE, "--limit", "20")),
    Command(("advise", EXAMPLE, "--no-verify")),
    Command(("advise", SMALL)),
    Command(("advise", EXAMPLE), 3.0),
    Command(("advise", EXAMPLE), 8.0, without="numba"),
    Command(("simulate", SMALL, "--granularity", "packet"), again=True),
    Command(("advise", SMALL), again=True),
    Command(("advise", EXAMPLE), 1.0, again=True),
)


@dataclass(frozen=True, slots=True)
class Start:
    """One process: seconds of the clock and of the processor, the number of modules at its end, and its peak memory."""

    wall_s: float
    cpu_s: float
    modules: int
    peak_bytes: int


def start(tree: Path, command: Command) -> Start:
    """Run ``magus`` of a folder that holds the package ``magus``; results on disk lie beside it.

    Raises
    ------
    RuntimeError
        If it ends with an error, with the end of what it said.
    """
    memory = {"MAGUS_CACHE_DIR": str(tree / "cache"), "MAGUS_NO_CACHE": "0" if command.again else "1"}
    begin = perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", command.code, *command.words],
            env={**environment(tree), **memory},
            cwd=HERE,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = perf_counter() - begin
        said.seek(0)
        lines = said.read().decode().splitlines()
    if process.returncode:
        raise RuntimeError(f"{command.name} of {tree}: {' '.join(lines[-3:])}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Start(wall_s, usage.ru_utime + usage.ru_stime, int(lines[-1]), peak_bytes)


def figures(places: Sequence[tuple[str, Path]], commands: Sequence[Command], rounds: int) -> Iterator[Figure]:
    """Medians of each command in each tree; of two trees also the ratios, the second over the first."""
    for command in commands:
        name = command.name
        starts: dict[str, list[Start]] = {label: [] for label, _ in places}
        for turn in range(rounds + 1):
            for label, tree in places:
                one = start(tree, command)
                if turn:
                    starts[label].append(one)
        walls = {label: median(one.wall_s for one in each) for label, each in starts.items()}
        cpus = {label: median(one.cpu_s for one in each) for label, each in starts.items()}
        for idx, (label, each) in enumerate(starts.items()):
            target = None if idx else command.wall_s
            yield Figure(f"{name}, {label}: wall", walls[label], "s", "lower", target)
            yield Figure(f"{name}, {label}: CPU", cpus[label], "s", "lower")
            yield Figure(f"{name}, {label}: modules", each[-1].modules, "modules", "lower")
        if len(places) == 2:
            (mine, _), (other, _) = places
            yield Figure(f"{name}: wall of {other} over {mine}", walls[other] / walls[mine], "x", "higher")
            yield Figure(f"{name}: CPU of {other} over {mine}", cpus[other] / cpus[mine], "x", "higher")


def run(argv: Sequence[str] | None = None) -> int:
    """The command line; a missed target is reported and is no error."""
    parser = parser_of(__doc__)
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout of Magus, measured in turns")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="processes for each command and tree")
    parser.add_argument("--only", default="", metavar="WORD", help="commands whose line contains this")
    options = parser.parse_args(argv)
    commands = [command for command in COMMANDS if options.only in " ".join(command.words)]
    with trees(options.against) as places:
        tell(figures(list(places.items()), commands, options.rounds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run())
