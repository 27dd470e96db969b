"""The recipes of CONTRIBUTING, performed with toy things: what a test registers, every command takes at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from magus.advisor.candidates.predicted import predicted_us
from magus.compiler import compile_file
from magus.compiler.codes import Code
from magus.compiler.ir import TICKS_PER_US, Fabric, Network, OpChoice, Topology, topologies
from magus.compiler.ir.stopping import Rejection
from magus.compiler.ir.topologies.base import LINK
from magus.compiler.ir.topologies.network import Symmetry, edge_over
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.knobs.engine import default_engine
from magus.compiler.templates import BASELINE
from magus.simcore import simulate_op
from tests.helpers.commands import document, magus
from tests.helpers.house import Done, house_with, run_in
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model")
TINY = """
use "amd/mi300x"
param GPUS = 4 in 1..4
system line {{ gpus GPUS x MI300X; fabric {fabric} }}
workload up on line {{
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[512, 512] shard cols
  y = gemm(all_gather(x), w)
}}
schedule mine for up = shard_p2p(engine=dma(2))
explore up {{ chunks 4, 8; engine dma }}
"""


QUICK = ("--top", "2", "--bespoke", "0", "--workers", "1", "--json")


def advice_on(file: Path) -> dict[str, object]:
    return document("advise", file, *QUICK[:-1])


def items(found: dict[str, object], name: str) -> list[Any]:
    """A list in a document."""
    listed = found[name]
    assert isinstance(listed, list) and listed
    return listed


# "Adding a topology": links between neighbours, both ways, and none from the last to the first.


def _connect(fabric: Fabric, n: int) -> Network:
    steps = [(rank, rank + 1) for rank in range(n - 1)]
    edges = [edge_over(fabric.link, *ends, "right") for ends in steps]
    edges += [edge_over(fabric.link, *ends[::-1], "left") for ends in steps]
    return Network(n, tuple(edges), lambda node, destination: node + (1 if destination > node else -1), Symmetry(n))


def _reject(fabric: Fabric, n: int) -> Rejection | None:
    return Rejection(Code.MGS420, "a chain has two ends") if n < 2 else None


CHAIN = Topology("chain", (LINK,), "chain(xgmi)", connect=_connect, reject=_reject)
AS_EDGES = "edges(xgmi=[[0, 1], [1, 2], [2, 3]])"


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(topologies, "TOPOLOGIES", (*topologies.TOPOLOGIES, CHAIN))
    file = tmp_path / "chain.mgs"
    file.write_text(TINY.format(fabric="chain(xgmi)"))
    return file


def test_a_new_topology_is_checked(chain: Path) -> None:
    assert magus("check", chain).exit_code == 0
    refused = magus("check", chain, "--set", "GPUS=1")
    assert refused.exit_code == 1 and "MGS420" in refused.output and "a chain has two ends" in refused.output

    chain.write_text(TINY.format(fabric="chain()"))
    unsaid = magus("check", chain)
    assert "chain does not say its link" in unsaid.output and CHAIN.example in unsaid.output

    chain.write_text(TINY.format(fabric="chane(xgmi)"))
    assert "chain" in magus("check", chain).output.replace("chane", "")


def test_a_new_topology_is_simulated_and_advised_on_as_the_same_links_one_by_one(chain: Path, tmp_path: Path) -> None:
    edges = tmp_path / "edges.mgs"
    edges.write_text(TINY.format(fabric=AS_EDGES))

    assert magus("schedules", chain).exit_code == 0
    for schedule in ("mine", "serial"):
        runs = [document("simulate", file, "--schedule", schedule) for file in (chain, edges)]
        assert runs[0]["makespan_us"] == runs[1]["makespan_us"]
        assert runs[0]["waterfall"] == runs[1]["waterfall"]
    found, expected = advice_on(chain), advice_on(edges)
    assert found["candidates"] == expected["candidates"] != []
    assert found["bound"] == expected["bound"]


def test_times_are_estimated_on_a_new_topology(chain: Path) -> None:
    scenario = compile_file(chain).scenario().case
    choice = OpChoice(BASELINE.name, scenario.num_ranks, default_engine(scenario.system))
    schedule = build_op_plan(scenario, choice)

    (predicted,) = predicted_us(scenario, [choice], [schedule])

    simulated = simulate_op(scenario, schedule).makespan_ticks / TICKS_PER_US
    assert predicted == pytest.approx(simulated, rel=0.05)


# "Adding a template": as uniform_fused_1d, but all transfers are issued before the first kernel.

EARLY = '''"""early_1d: every transfer is issued at once, and a kernel follows for each slice of rows."""

from collections.abc import Iterator

from ..ir import Pattern, Step, TileGroup
from .base import Cut, Template, TemplateInput


def build(problem: TemplateInput) -> Iterator[Step]:
    """Transfers of all slices, then their kernels."""
    slices = [problem.fetches(f"x{index}_", index) for index in range(problem.pieces)]
    for fetches in slices:
        yield from (fetch.transfer for fetch in fetches)
    for index, fetches in enumerate(slices):
        arrived = tuple(fetch.transfer.signal for fetch in fetches)
        yield TileGroup(f"g{index}", problem.all_gathered(index), problem.all_inner, arrived)


TEMPLATE = Template("early_1d", Cut.ROWS, overlaps=True, min_pieces=2, patterns=(Pattern.AG_GEMM,), build=build)
'''
TEMPLATES_INIT, ALGORITHMS_INIT = "compiler/templates/__init__.py", "compiler/collectives/__init__.py"
EARLY_8, UNIFORM_8 = (f"{name}(chunks=8, engine=dma(3))" for name in ("early_1d", "uniform_fused_1d"))


@dataclass(frozen=True)
class Grown:
    """What commands did on files in ``folder``, in a house with a template and an algorithm more."""

    folder: Path
    by_template: list[Done]
    by_algorithm: list[Done]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """One house has both, and one process runs all commands: a start takes longer than any of them."""
    folder = tmp_path_factory.mktemp("grown")
    changes = {
        "compiler/templates/early_1d.py": EARLY,
        TEMPLATES_INIT: with_line(TEMPLATES_INIT, "early_1d", "early_1d.TEMPLATE", "    serial.BULK,\n"),
        "compiler/collectives/backwards.py": BACKWARDS,
        ALGORITHMS_INIT: with_line(ALGORITHMS_INIT, "backwards", "backwards.ALGORITHM", "    direct.NVLS,\n"),
    }
    on_template, on_algorithm = commands_on_template(folder), commands_on_algorithm(folder)
    done = run_in(house_with(folder, changes), [*on_template, *on_algorithm])
    return Grown(folder, done[: len(on_template)], done[len(on_template) :])


def with_line(file: str, name: str, line: str, before: str) -> str:
    """The text of a file with the import of a module, and a line for it in a tuple."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert text.count(before) == 1
    return text.replace(before, f"    {line},\n{before}").replace(
        "\nfrom . import", f"\nfrom . import {name}\nfrom . import"
    )


def commands_on_template(folder: Path) -> list[list[str | Path]]:
    file = folder / "early.mgs"
    file.write_text(TINY.format(fabric="full_mesh(xgmi)").replace("shard_p2p(engine=dma(2))", EARLY_8))
    return [
        ["check", file],
        ["fmt", file],
        ["schedules", file, "--json"],
        ["simulate", file, "--schedule", "mine", "--json"],
        ["simulate", file, "--schedule", UNIFORM_8, "--json"],
        ["advise", file, *QUICK],
    ]


def test_a_new_template_is_checked_simulated_and_ranked(grown: Grown) -> None:
    checked, written, listed, mine, same, advised = grown.by_template

    assert checked.exit_code == written.exit_code == 0 and EARLY_8 in (grown.folder / "early.mgs").read_text()
    assert {EARLY_8, UNIFORM_8} <= set(items(listed.document, "schedules"))
    assert mine.document["makespan_ticks"] == same.document["makespan_ticks"]
    # What a plan does is all that the estimate sees, so that equal plans are predicted alike, whatever they are called.
    found = {each["schedule"]: each for each in items(advised.document, "candidates")}
    assert found[EARLY_8]["predicted_us"] == found[UNIFORM_8]["predicted_us"]
    assert found[EARLY_8]["simulated_us"] is not None


# "Adding an algorithm": a ring the other way round.

BACKWARDS = '''"""backwards: as ring, with blocks that travel to the rank before instead of the next."""

from ..ir import Pattern
from .base import Algorithm, CollectiveProblem, Fragment, RankGroup
from .rings import ring_gather


def _build(problem: CollectiveProblem) -> Fragment:
    n = problem.num_ranks
    return ring_gather(problem, RankGroup((0, *range(n - 1, 0, -1))))


ALGORITHM = Algorithm("backwards", (Pattern.ALL_GATHER,), _build, passes_on=True)
'''
GATHER = """
use "amd/mi300x"
system circle { gpus 4 x MI300X; fabric ring(xgmi, both_ways=yes) }
workload gather on circle {
  x = tensor bf16[512, 512] shard rows
  y = all_gather(x)
}
workload up on circle {
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[512, 512] shard cols
  y = gemm(all_gather(x), w)
}
explore gather { chunks 8; engine dma }
explore up { chunks 8; engine dma }
"""


def commands_on_algorithm(folder: Path) -> list[list[str | Path]]:
    file = folder / "backwards.mgs"
    file.write_text(GATHER)
    runs: list[list[str | Path]] = [
        ["simulate", file, "--workload", workload, "--schedule", schedule.format(name), "--json"]
        for workload, schedule in (("gather", "{}(chunks=8)"), ("up", "pipelined(chunks=8, algorithm={})"))
        for name in ("backwards", "ring")
    ]

    return [
        ["check", file],
        *runs,
        ["advise", file, "--workload", "gather", *QUICK],
        ["advise", file, "--workload", "up", *QUICK],
    ]


def test_a_new_algorithm_is_a_template_and_an_algorithm_of_others(grown: Grown) -> None:
    checked, *simulated, alone, beside = grown.by_algorithm

    assert checked.exit_code == 0, checked.output
    mine, theirs, mine_beside, theirs_beside = (run.document["makespan_ticks"] for run in simulated)
    assert mine == theirs and mine_beside == theirs_beside
    for advised, name in ((alone, "backwards("), (beside, "algorithm=backwards")):
        found = [each for each in items(advised.document, "candidates") if name in each["schedule"]]
        assert any(each["simulated_us"] is not None for each in found)
