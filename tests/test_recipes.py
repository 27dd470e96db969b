"""The recipes of CONTRIBUTING, performed with toy things: what a test registers, every command takes at once."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from magus.compiler.codes import Code
from magus.compiler.ir import Fabric, Network, Topology, topologies
from magus.compiler.ir.rejection import Rejection
from magus.compiler.ir.topologies.base import LINK
from magus.compiler.ir.topologies.network import edge_over
from magus.tui.cli import app

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


def magus(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def document(*words: str | Path) -> dict[str, object]:
    done = magus(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def advice_on(file: Path) -> dict[str, object]:
    return document("advise", file, "--top", "2", "--bespoke", "0", "--workers", "1")


# "Adding a topology": links between neighbours, both ways, and none from the last to the first.


def _connect(fabric: Fabric, n: int) -> Network:
    steps = [(rank, rank + 1) for rank in range(n - 1)]
    edges = [edge_over(fabric.link, *ends, "right") for ends in steps]
    edges += [edge_over(fabric.link, *ends[::-1], "left") for ends in steps]
    return Network.of_edges(n, edges, lambda node, destination: node + (1 if destination > node else -1))


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
