"""The closed form of the pipeline: what it says of the orders and costs that decide between structures."""

from dataclasses import replace

import numpy as np
import pytest

from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.learned.pipeline import pipeline_times
from magus.advisor.learned.situation import Situation
from magus.advisor.learned.structure import MAX_PIECES, BatchShape, Shapes, Structure, fitted
from magus.compiler.ir import EngineChoice, EngineKind, ExecutionOptions, Kernels, OpCase, OpChoice, Wait
from magus.compiler.planning.build import build_op_plan
from magus.compiler.request.request import Request
from magus.compiler.request.scenario import scenario_of
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, ring

DMA = EngineChoice(EngineKind.DMA, 1)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
OWN, REST, WHOLE = BatchShape(1.0, (0.0,)), BatchShape(0.0, (1.0,)), BatchShape(1.0, (1.0,))
HALVES = (BatchShape(0.0, (0.5,)),) * 2
BANDS = replace(WHOLE, columns=(0.25,) * 4)


def gemm_ar(m: int, n: int, k: int) -> OpCase:
    return scenario_of(Request("GEMM+AR", m=m, n=n, k=k // 8, gpu="MI300X", ranks=8)).case


def bespoke(*batches: BatchShape, streams: int = 1, options: ExecutionOptions | None = None) -> Structure:
    knobs = OpChoice("bespoke", 1, DMA, streams, tactics=options or ExecutionOptions())
    return Structure(knobs, 1, 1.0, 0.0, batches)


def template(name: str, pieces: int = 1, algorithm: str = "") -> Structure:
    return Structure(OpChoice(name, 1, DMA, 1, algorithm=algorithm), pieces, 1.0, 0.0, ())


def times(scenario: OpCase, *structures: Structure) -> list[float]:
    """Times over that of the whole kernel."""
    shapes = Shapes.of(structures, scenario.num_ranks, consumes=scenario.shape.pattern.consumes)
    return [float(time) for time in np.exp(pipeline_times(Situation.of(scenario), shapes))]


def estimated(scenario: OpCase, structure: Structure) -> float:
    choice = fitted(structure, scenario)
    assert choice is not None
    ticks = estimate_ticks(scenario, build_op_plan(scenario, choice))
    return ticks / 1e8 / Situation.of(scenario).ratio("log_whole_us")


CASES = [
    (ag_gemm(8192, 8192, 8192), (template("serial"), bespoke(OWN, *HALVES), bespoke(OWN, *HALVES, streams=2))),
    (gemm_rs(8192, 8192, 8192), (template("serial"), bespoke(*HALVES, OWN), bespoke(BANDS))),
    (gemm_ar(8192, 8192, 8192), (template("serial"), bespoke(*HALVES, OWN), bespoke(BANDS))),
    (ag_gemm(8192, 8192, 8192, fabric=ring()), (template("serial"), bespoke(OWN, *HALVES))),
    (ag_gemm(8192, 8192, 8192, fabric=ring()), (template("pipelined"), template("pipelined", 2, "double_ring"))),
]


@pytest.mark.parametrize("scenario, structures", CASES)
def test_it_is_near_the_estimate(scenario: OpCase, structures: tuple[Structure, ...]) -> None:
    ratios = [
        form / estimated(scenario, each) for form, each in zip(times(scenario, *structures), structures, strict=True)
    ]

    assert len(ratios) == len(structures) and all(0.85 < ratio < 1.15 for ratio in ratios), ratios


def test_what_needs_no_data_runs_first_in_another_stream_alone() -> None:
    scenario = ag_gemm(8192, 8192, 8192)

    in_turn, late, beside = times(scenario, bespoke(OWN, REST), bespoke(REST, OWN), bespoke(REST, OWN, streams=2))

    assert in_turn < late and beside == pytest.approx(in_turn, rel=0.02)


def test_what_all_ranks_keep_passes_the_links_twice() -> None:
    scattered, kept = gemm_rs(512, 8192, 1024), gemm_ar(512, 8192, 1024)
    (once,), (twice,) = (times(each, template("serial")) for each in (scattered, kept))

    assert Situation.of(scattered).ratio("log_comm_over_whole") > 1
    assert 1.6 < (twice - 1) / (once - 1) < 2.2


def test_copies_to_one_peer_after_the_other_leave_the_other_links_of_a_mesh_idle() -> None:
    mesh = ag_gemm(8192, 8192, 8192)

    at_once, one_by_one = times(mesh, template("serial"), template("shard_p2p"))

    assert one_by_one > 1.5 * at_once


def test_blocks_that_share_tiles_of_a_persistent_kernel_wait_for_each_other() -> None:
    structure = bespoke(OWN, REST, options=PERSISTENT)
    whole, shared = ag_gemm(8192, 8192, 8192), ag_gemm(8 * 1000, 8192, 8192)

    gains = [times(each, template("serial"))[0] / times(each, structure)[0] for each in (whole, shared)]

    assert (Situation.of(whole)["shared_tiles"], Situation.of(shared)["shared_tiles"]) == (0, 1)
    assert gains[0] > 1.05 > gains[1]


def test_of_many_pieces_neighbours_are_taken_together() -> None:
    fine = template("uniform_fused_1d", 4 * MAX_PIECES)

    shapes = Shapes.of([fine, template("serial")], 8, consumes=True)

    assert shapes.own.shape == (2, MAX_PIECES) and shapes.crowd.tolist() == [4, 1]
    assert shapes.own.sum(axis=1) == pytest.approx([1, 1]) and shapes.remote.sum(axis=1) == pytest.approx([1, 1])
