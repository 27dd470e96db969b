"""What a user waits for: advice on every shipped pair and collective, and large systems, simulated and advised.

Each command is a process of its own without results on disk, as in ``benchmarks.startup``. Peak memory is that of the
largest process of a command, its workers included.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .harness.checkouts import HERE, trees
from .harness.report import Figure, parser_of, tell
from .startup import Command, start

EXAMPLE_S, MEDIAN_S, PEAK_MIB = 15.0, 4.0, 1024.0
SIMULATED_S = {256: 3.0, 1024: 10.0}
"""Seconds for an all_gather in packets, what-if runs included, by ranks."""

HEAD = """mgs 1
use "nvidia/h100"
switch wide extends nvswitch {{ ports 4096 }}
link nic {{
  bandwidth 50 GB/s @nominal "400 Gb/s, one direction"
  achieved 45 GB/s @assumed
  latency 1.5 us @assumed
}}
system large {{ gpus {ranks} x H100; fabric {fabric} }}
workload asked on large {{
"""
ALL_GATHER = HEAD + "  x = tensor bf16[{rows}, 4096] shard rows\n  y = all_gather(x)\n}}\n"
AG_GEMM = HEAD + (
    "  x = tensor bf16[16384, 8192] shard rows\n  w = tensor bf16[8192, 3584]\n  y = gemm(all_gather(x), w)\n}}\n"
)
ROWS_PER_RANK = 128
"""1 MiB of 4096 bf16."""


@dataclass(frozen=True, slots=True)
class Large:
    """A question about a large system, with the wall time it may take."""

    text: str
    ranks: int
    fabric: str
    words: tuple[str, ...]
    wall_s: float

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.words[0]}_{self.ranks}_{self.fabric.partition('(')[0]}.mgs"

    def command(self, folder: Path) -> Command:
        """The command, of a file that this writes to ``folder``."""
        path, rows = folder / self.name, self.ranks * ROWS_PER_RANK
        path.write_text(self.text.format(ranks=self.ranks, fabric=self.fabric, rows=rows))
        return Command((self.words[0], str(path), *self.words[1:]), self.wall_s)


def fabrics(ranks: int) -> tuple[str, ...]:
    """The fabrics that fold, of so many GPUs."""
    rows = {64: 8, 256: 16, 1024: 32}[ranks]
    return (
        "switch(wide, link=nvlink)",
        "rails(nvswitch, link=nvlink, node=8, nic=nic)",
        f"torus(nvlink, shape=[{rows}, {ranks // rows}])",
        "fat_tree(wide, link=nvlink, leaf=8, spines=8)",
    )


SIMULATE = ("simulate", "--schedule", "direct(engine=dma(8))", "--granularity", "packet")
LARGE = (
    *(
        Large(ALL_GATHER, ranks, fabric, SIMULATE, SIMULATED_S[ranks])
        for ranks in SIMULATED_S
        for fabric in fabrics(ranks)
    ),
    *(Large(AG_GEMM, 64, fabric, ("advise",), 20.0) for fabric in fabrics(64)[:3]),
    Large(AG_GEMM, 1024, fabrics(1024)[1], ("advise",), 60.0),
)


def figures(only: str) -> Iterator[Figure]:
    """Those of commands whose line contains ``only``."""
    with trees() as places, _commands() as commands:
        examples: list[float] = []
        peaks: list[int] = []
        for command in commands:
            if only not in command.name:
                continue
            done = start(places["here"], command)
            peaks.append(done.peak_bytes)
            name = " ".join(Path(word).name if word.endswith(".mgs") else word for word in command.words[:2])
            yield Figure(f"magus {name}", done.wall_s, "s", "lower", command.wall_s)
            if command.words[1].startswith("examples/"):
                examples.append(done.wall_s)
        if examples:
            yield Figure(f"median of {len(examples)} examples", median(examples), "s", "lower", MEDIAN_S)
        if peaks:
            yield Figure("peak memory of a process", max(peaks) / 2**20, "MiB", "lower", PEAK_MIB)


@contextmanager
def _commands() -> Iterator[list[Command]]:
    """All commands; their files are there meanwhile.."""
    examples = sorted(path for room in ("examples", "examples/templates") for path in (HERE / room).glob("*.mgs"))
    with tempfile.TemporaryDirectory() as folder:
        yield [
            *(Command(("advise", path.relative_to(HERE).as_posix()), EXAMPLE_S) for path in examples),
            *(large.command(Path(folder)) for large in LARGE),
        ]


def run(argv: Sequence[str] | None = None) -> int:
    """The command line; a missed target is reported and is no error."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="commands whose line contains this")
    options = parser.parse_args(argv)
    tell(figures(options.only), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run())
