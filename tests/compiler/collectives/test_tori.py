"""One tree on a torus: every place once, copies in an order that brings what they take, of rows of several ranks."""

from itertools import product
from math import prod

import pytest

from magus.compiler import compile_text
from magus.compiler.collectives import tori
from magus.compiler.collectives.tori import beside, hops_of
from magus.compiler.ir import EngineChoice, EngineKind, EngineMode, OpChoice, regions_of
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.verify.check import check_plan
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from tests.helpers.some import some

CHANNELS, SMS = EngineChoice(EngineKind.DMA, 12, EngineMode.CHANNELS), EngineChoice(EngineKind.SM, 16)
GRIDS = [(3, 3), (4, 4), (3, 5), (8, 8, 4), (3, 4, 5)]


@pytest.mark.parametrize(("grid", "most"), [*product(GRIDS, (1, 3))])
def test_the_copies_bring_the_shard_of_the_root_to_each_place_once(grid: tuple[int, ...], most: int) -> None:
    reached = [(0,) * len(grid)]
    for hop in some(hops_of(grid, most)):
        assert 1 <= len(hop.places) <= most and set(hop.places) <= set(reached), "what it takes has come before"
        reached += [beside(grid, place, hop.way) for place in hop.places]

    assert len(reached) == len(set(reached)) == prod(grid)


@pytest.mark.parametrize("grid", [(4, 4, 4), (8, 8, 4), (4, 4, 8)])
def test_all_directions_carry_about_as_much(grid: tuple[int, ...]) -> None:
    hops = hops_of(grid, -(-prod(grid) // (2 * len(grid) * tori.COPIES)))
    loads = [sum(len(hop.places) for hop in hops if hop.way == way) for way in {hop.way for hop in hops}]

    assert len(loads) == 2 * len(grid)
    assert max(loads) <= 1.1 * (prod(grid) - 1) / len(loads) + 1


@pytest.mark.parametrize("engine", [CHANNELS, SMS], ids=str)
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("grid", [(4, 4), (3, 5)], ids=str)
def test_copies_of_several_shards_are_right(
    grid: tuple[int, ...], op: str, engine: EngineChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COPIES", "WITH_SUMS"):
        monkeypatch.setattr(tori, name, 1)
    case, n = compile_text(on_torus(grid, op)).scenario().case, prod(grid)
    choice = OpChoice("torus_tree", n, engine, lanes=4 if engine is CHANNELS else 0)
    plan = build_op_plan(case, choice)

    assert max(len(regions_of(step)) for step in plan.steps) > 1
    assert not check_plan(case, plan)
    assert carry_out(*job_of_op(case, plan), range(2)).exact
    assert len(plan.by_rank) == n // grid[0]


REFUSED = [
    ((2, 8), "all_gather", "a torus of two or three sides of 3 or more ranks"),
    ((16,), "all_gather", "a torus of two or three sides of 3 or more ranks"),
]


@pytest.mark.parametrize(("grid", "op", "message"), REFUSED)
def test_other_networks_are_refused(grid: tuple[int, ...], op: str, message: str) -> None:
    case = compile_text(on_torus(grid, op)).scenario().case
    rejection = reject_choice(case, OpChoice("torus_tree", prod(grid), CHANNELS))

    assert rejection is not None and message in rejection.message


def on_torus(grid: tuple[int, ...], op: str) -> str:
    layout = "shard rows" if op == "all_gather" else ""
    return f"""use "amd/mi300x"
system t {{ gpus {prod(grid)} x MI300X; fabric torus(xgmi, shape={list(grid)}) }}
workload w on t {{ x = tensor bf16[{4 * prod(grid)}, 256] {layout}; y = {op}(x) }}
"""
