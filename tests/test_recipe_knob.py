"""The recipe for a knob in CONTRIBUTING, performed with a toy one: every command takes what a test registers."""

from pathlib import Path

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import Rejection
from magus.compiler.planning import knobs
from magus.compiler.planning.knobs import Knob, Rule, ScheduleRequest
from magus.compiler.planning.knobs.base import CountValues
from tests.helpers.commands import magus

FILE = """
use "amd/mi300x"
system s { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on s {
  x = tensor bf16[512, 512] shard rows
  w = tensor bf16[512, 512] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up = shard_p2p(engine=dma(3), turns=2)
explore up { schedules serial, shard_p2p; engine dma(3); turns 1, 2, 5 }
"""
OF_BESPOKE = ("parts", "slices", "columns", "lanes")


def _reject_turns(request: ScheduleRequest) -> Rejection | None:
    turns, engine = request.choice.lanes, request.choice.engine
    return Rejection(Code.MGS401, f"{turns} turns of {engine}", "a turn is an engine") if turns > engine.count else None


# The field is one that these templates do not look at, so that its schedules with and without are one.
TURNS = Knob("turns", CountValues(8), rules=(Rule(("engine", "turns"), _reject_turns),), named="lanes")


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    known = tuple(knob for knob in knobs.KNOBS if knob.word not in OF_BESPOKE)
    monkeypatch.setattr(knobs, "KNOBS", (*known[:4], TURNS, *known[4:]))
    path = tmp_path / "turns.mgs"
    path.write_text(FILE)
    return path


def test_a_new_knob_is_read_and_its_rule_is_heard(file: Path) -> None:
    assert magus("check", file).exit_code == 0

    simulated = magus("simulate", file, "--schedule", "shard_p2p(engine=dma(3), turns=2)")
    assert simulated.exit_code == 0 and "shard_p2p(engine=dma(3), turns=2)" in simulated.output

    refused = magus("simulate", file, "--schedule", "shard_p2p(engine=dma(3), turns=5)")
    assert refused.exit_code == 1 and "5 turns of dma(3)" in refused.output and "a turn is an engine" in refused.output

    assert "turns is from 1 to 8" in magus("simulate", file, "--schedule", "shard_p2p(turns=9)").output


def test_a_new_knob_is_searched_and_advised_on(file: Path) -> None:
    space = magus("schedules", file, "--json")
    assert space.exit_code == 0, space.output
    expressions = [f"shard_p2p(engine=dma(3), turns={turns})" for turns in (1, 2)]
    assert all(expression in space.stdout for expression in expressions) and "turns=5" not in space.stdout

    advice = magus("advise", file, "--top", "4", "--bespoke", "0", "--workers", "1", "--json")
    assert advice.exit_code == 0, advice.output
    assert any(expression in advice.stdout for expression in expressions)


def test_a_space_that_the_rule_empties_is_explained(file: Path) -> None:
    file.write_text(FILE.replace("turns 1, 2, 5", "turns 5").replace("serial, shard_p2p", "shard_p2p"))

    absent = magus("schedules", file)

    assert "5 turns of dma(3)" in absent.output and "turns are 5" in absent.output
