"""Every number that a device may say, at both ends of its range: each command answers, or says with a code why not."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from magus.advisor import AdviceOptions
from magus.compiler.text.units import BYTES, FLOP_RATE, FREQUENCY, NUMBER, RATE, TIME, Dimension
from magus.compiler.text.vocabulary import (
    CACHE_NUMBERS,
    COLLECTIVES,
    GPU_BLOCKS,
    GPU_NUMBERS,
    LINK_NUMBERS,
    PEAK,
    SWITCH_NUMBERS,
    TYPE_BLOCKS,
    Property,
)
from magus.tui.commands.answers.advise import AdviseOptions, advise_file
from magus.tui.commands.answers.export import list_schedules
from magus.tui.commands.inputs import ScenarioInput
from magus.tui.commands.out import SimulateOptions
from magus.tui.commands.scenarios.files import check_files
from magus.tui.commands.scenarios.simulate import simulate_file
from magus.tui.text.door import Exit
from tests.helpers.marks import thinned

FILE = """
use "nvidia/h100"
gpu X extends H100 {{ {gpu} }}
link cable extends nvlink {{ {link} }}
switch middle extends nvswitch {{ {switch} }}
system node {{ gpus 2 x X; fabric switch(middle, link=cable) }}
workload w on node {{
  x = tensor bf16[512, 256] shard rows
  w = tensor bf16[256, 512] shard cols
  y = gemm(all_gather(x), w)
}}
schedule mine for w = uniform_fused_1d(chunks=4, engine=sm(1))
explore w {{ schedules serial, uniform_fused_1d, hetero_fused_1d; chunks 2..4 x2; engine dma, sm(1) }}
"""
UNITS: dict[Dimension, tuple[str, Fraction]] = {
    BYTES: (" B", Fraction(1)),
    RATE: (" MB/s", Fraction(10**6)),
    TIME: (" ns", Fraction(1, 10**9)),
    FREQUENCY: (" Hz", Fraction(1)),
    FLOP_RATE: (" GFLOP/s", Fraction(10**9)),
    NUMBER: ("", Fraction(1)),
}
# What is held against a number by another one of the device goes along with it.
WITH = {
    ("sms", 0): "cache l2 { per 1 sms }",
    ("sms", 1): "cache l2 { per 1 sms }",
    ("hbm.bandwidth", 0): "hbm { achieved 1 MB/s }",
    ("hbm.achieved", 1): "hbm { bandwidth 1000 TB/s }",
    ("link.bandwidth", 0): "achieved 1 MB/s",
    ("link.achieved", 1): "bandwidth 1000 TB/s",
    ("sm_copy.bandwidth", 1): "sm_copy { limit 1000 TB/s }",
    ("sm_copy.limit", 0): "sm_copy { bandwidth 1 MB/s }",
}
PHASES = ("control", "schedule", "copy", "sync")
# Half of a block alone is refused, as it should be, and so are protocols of which a slower one is faster.
REFUSED = {
    ("hbm.capacity", 0): "no schedule is feasible",
    ("sms", 0): "at most 0 of X's 1 may copy",
    ("switch.ports", 0): "the switch needs 2 ports",
    **{(f"dma.{phase}_phase", end): "is incomplete" for phase in PHASES for end in (0, 1)},
    **{
        (f"collectives.{inside}{protocol}_bandwidth", end): "is more than"
        for inside in ("", "all_to_all.")
        for protocol, end in (("ll", 1), ("ll128", 0), ("ll128", 1), ("simple", 0))
    },
}


@dataclass(frozen=True)
class End:
    """A number of a device at the low (0) or high (1) end of its range, and the file that says it."""

    path: str
    end: int
    text: str

    @property
    def refused(self) -> str:
        """What must be said of it; empty if all commands must answer."""
        return REFUSED.get((self.path, self.end), "")


def written(number: Property, end: int) -> str:
    unit, size = UNITS[number.dimension]
    value = (number.low, number.high)[end] / size
    text = str(value.numerator) if value.denominator == 1 else f"{float(value):.6f}"
    return f"{number.name} {text}{unit}".replace("peak ", "peak bf16 ")


def ends() -> Iterator[End]:
    for numbers, place, path, around in places():
        for number in numbers:
            for end in (0, 1):
                name = path + number.name
                more = WITH.get((name, end), "")
                parts = {"gpu": "", "link": "", "switch": ""}
                parts[place] = f"{around.format(written(number, end))}; {more}"
                yield End(name, end, FILE.format(**parts))


def places() -> Iterator[tuple[tuple[Property, ...], str, str, str]]:
    """Numbers, the device that says them, the beginning of their path, and what stands around one."""
    yield (*GPU_NUMBERS, PEAK), "gpu", "", "{}"
    yield CACHE_NUMBERS, "gpu", "l2.", "cache l2 {{ {} }}"
    for block, numbers in GPU_BLOCKS.items():
        yield numbers, "gpu", f"{block}.", block + " {{ {} }}"
    for block, numbers in TYPE_BLOCKS.items():
        yield numbers, "gpu", f"{block}.fp8.", f"{block} {{{{ fp8 {{{{ {{}} }}}} }}}}"
    for block, numbers in COLLECTIVES.items():
        inside = block + " {{ {} }}" if block else "{}"
        yield numbers, "gpu", f"collectives.{block}{'.' * bool(block)}", "collectives {{ " + inside + " }}"
    yield LINK_NUMBERS, "link", "link.", "{}"
    yield SWITCH_NUMBERS, "switch", "switch.", "{}"


ALL = list(ends())
QUICK = ("gemm.exponent", "gemm.k_step", "sm_copy.exponent", "link.bandwidth", "hbm.capacity", "peak", "sms")


def named(end: End) -> str:
    return f"{end.path}-{('low', 'high')[end.end]}"


def run_all(file: Path) -> list[Exit]:
    """The exits of check, schedules, simulate and advise; what they raise is a fault of theirs."""
    source = ScenarioInput(file)
    checked = check_files([file], (), as_json=False)
    if checked is not Exit.DONE:
        return [checked]
    listed = list_schedules(source, limit=None, as_json=False)
    simulated = simulate_file(source, SimulateOptions(at_line=False))
    advised = advise_file(source, AdviseOptions(AdviceOptions(3, verify=False, bespoke=0, workers=1), as_json=True))
    return [checked, listed, simulated, advised]


@pytest.mark.quick(4)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "end",
    [end if end.path in QUICK else pytest.param(end, marks=pytest.mark.slow) for end in ALL],
    ids=named,
)
def test_every_command_answers_at_the_ends_of_every_range(
    end: End, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "end.mgs"
    file.write_text(end.text)

    exits = run_all(file)

    said = capsys.readouterr().err
    if end.refused:
        assert set(exits) - {Exit.DONE}
        assert end.refused in said and "MGS" in said
    else:
        assert exits == [Exit.DONE] * 4, said


def test_what_is_said_of_ends_is_said_of_numbers_that_there_are() -> None:
    known = {(end.path, end.end) for end in ALL}

    assert {*WITH, *REFUSED} <= known
    assert set(QUICK) <= {path for path, _ in known}


# Each third has both operations, and times and rates at both ends.
@pytest.mark.quick(1)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", thinned(product(("reduce_scatter", "all_reduce"), (0, 1), (0, 1)), 3))
def test_every_command_answers_where_all_numbers_are_at_their_ends(
    case: tuple[str, int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operation, times, rates = case

    def at_ends(numbers: tuple[Property, ...]) -> str:
        kept = [number for number in numbers if number.name not in ("capacity", "ports")]
        return "; ".join(written(number, times if number.dimension is TIME else rates) for number in kept)

    blocks = [f"{block} {{ {at_ends(numbers)} }}" for block, numbers in GPU_BLOCKS.items()]
    gpu = "; ".join([*blocks, f"cache l2 {{ {at_ends(CACHE_NUMBERS)} }}", written(PEAK, rates)])
    text = FILE.format(gpu=gpu, link=at_ends(LINK_NUMBERS), switch=at_ends(SWITCH_NUMBERS))
    text = text.replace("256] shard rows", "256] shard cols").replace("512] shard cols", "512] shard rows")
    file = tmp_path / "ends.mgs"
    file.write_text(text.replace("gemm(all_gather(x), w)", f"{operation}(gemm(x, w))"))

    exits = run_all(file)

    said = capsys.readouterr().err
    assert exits[1::2] == [Exit.DONE] * 2, said
    assert exits[2] is Exit.DONE or "MGS406" in said
