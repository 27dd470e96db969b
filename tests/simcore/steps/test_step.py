"""A step: its time is that of its pipeline, of traffic that nothing hides, and of the optimizer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import Rejection
from magus.compiler.ir.step import Overlapped, PassKind, Pipeline, PipelineKind, StepSchedule
from magus.simcore.steps.step import LayerTicks, StepTicks, layers_of_chunks, run_step

LAYER = LayerTicks(100, 120, 80, 90, 45)
BOTH = tuple(Overlapped)


def _step(layers: int = 8, layer: LayerTicks = LAYER, head: int = 0, optimizer: int = 30) -> StepTicks:
    return StepTicks((layer,) * layers, LayerTicks(head, head, head), 5, (optimizer,))


def test_without_overlap_all_traffic_comes_behind() -> None:
    """One stage: its passes, gradients of all layers, the update, and weights of all layers, one after the other."""
    run = run_step(_step(), StepSchedule("s", zero=1), 1, 4)
    assert run.pipeline.makespan_ticks == 4 * 8 * 300
    assert (run.gradients_ticks, run.optimizer_ticks, run.weights_ticks) == (8 * 90, 30, 8 * 45)
    assert run.makespan_ticks == 4 * 8 * 300 + 8 * 90 + 30 + 8 * 45


def test_passes_beside_each_other_end_sooner() -> None:
    """Of two stages with four layers each rank has as many slots of both passes, and gains in each of them."""
    dual = StepSchedule("s", Pipeline(PipelineKind.DUAL), zero=1)
    apart, beside = (run_step(_step(layer=replace(LAYER, gained=each)), dual, 2, 8) for each in (0, 30))
    slots = [sum(len(each.slot) == 2 for each in apart.pipeline.intervals if each.rank == rank) for rank in (0, 1)]
    assert min(slots) > 0
    for rank, count in enumerate(slots):
        assert apart.pipeline.busy[rank] - beside.pipeline.busy[rank] == count * 4 * 30
    assert apart.makespan_ticks - beside.makespan_ticks == max(slots) * 4 * 30


def test_with_overlap_the_ends_stay() -> None:
    """The first layer waits for its weights, and the gradients of the last are summed behind its pass."""
    run = run_step(_step(), StepSchedule("s", zero=1, overlapped=BOTH), 1, 4)
    assert run.gradients_ticks == 90
    assert run.makespan_ticks == 45 + 4 * 8 * 300 + 90 + 30


def test_long_traffic_is_exposed_for_what_passes_do_not_hide() -> None:
    """Gradients that take longer than a layer queue up behind the last pass."""
    slow = replace(LAYER, gradients=500)
    run = run_step(_step(layer=slow), StepSchedule("s", zero=1, overlapped=BOTH), 1, 4)
    assert run.gradients_ticks == 8 * 500 - 7 * 200


def test_weights_come_while_later_stages_wait() -> None:
    """Of the first stage the first weights are waited for; a later one has them when it begins."""
    slow = replace(LAYER, gathered=150, gradients=0)
    one = run_step(_step(layer=slow), StepSchedule("s", zero=1, overlapped=BOTH), 1, 1)
    assert one.pipeline.makespan_ticks == 8 * 150 + 100 + 8 * 200
    two = run_step(_step(layer=slow), StepSchedule("s", zero=1, overlapped=BOTH), 2, 1)
    assert two.pipeline.makespan_ticks == 4 * 150 + 100 + 5 + 4 * 100 + 8 * 200 + 5


def test_with_weights_in_parts_each_pass_gathers_them() -> None:
    """ZeRO-3 gathers the weights of each layer forward and backward, and scatters gradients, each microbatch."""
    apart = run_step(_step(), StepSchedule("s", zero=3), 1, 4)
    # Behind the last layer is the head, which is empty here: weights of the last layer come beside nothing.
    assert apart.pipeline.makespan_ticks == 4 * 8 * (300 + 45 + 45 + 90)
    beside = run_step(_step(), StepSchedule("s", zero=3, overlapped=BOTH), 1, 4)
    assert beside.pipeline.makespan_ticks == 4 * (45 + 8 * 100 + 45 + 8 * 200 + 90)


def test_in_a_zero_bubble_gradients_leave_behind_those_of_weights() -> None:
    """Gradients of inputs take weights, and beside them no gradients leave; those of weights take none."""
    pipeline = Pipeline(PipelineKind.ZERO_BUBBLE)
    apart = run_step(_step(), StepSchedule("s", pipeline, zero=3), 1, 4).pipeline
    taken = {(each.slot[0].work, each.end_ticks - each.begin_ticks) for each in apart.intervals}
    ends = {PassKind.FORWARD: 8 * (100 + 45), PassKind.INPUTS: 8 * (120 + 45), PassKind.WEIGHTS: 8 * (80 + 90)}
    assert taken == set(ends.items()) and apart.makespan_ticks == 4 * sum(ends.values())

    slow = replace(LAYER, gathered=150, gradients=130, backward_beside=207, sooner=5)
    beside = run_step(_step(layer=slow), StepSchedule("s", pipeline, zero=3, overlapped=BOTH), 1, 4).pipeline
    # Seven layers have the traffic of another one beside them.
    ends = {PassKind.FORWARD: 8 * 150 + 100, PassKind.INPUTS: 8 * 150 + 120 - 5, PassKind.WEIGHTS: 8 * 130 + 80 + 7}
    taken = {(each.slot[0].work, each.end_ticks - each.begin_ticks) for each in beside.intervals}
    assert taken == set(ends.items())


def test_stages_of_other_sizes() -> None:
    """Layers are dealt as evenly as can be, or as a schedule says, all of them."""
    assert layers_of_chunks(61, 4, StepSchedule("s")) == (15, 15, 15, 16)
    interleaved = StepSchedule("s", Pipeline(PipelineKind.INTERLEAVED, 2))
    assert layers_of_chunks(8, 2, interleaved) == (2, 2, 2, 2)
    assert layers_of_chunks(8, 2, StepSchedule("s", stages=(3, 5))) == (3, 5)
    for stages, layers in (((3, 4), 8), ((3, 3, 2), 8), ((), 1)):
        found = layers_of_chunks(layers, 2, StepSchedule("s", stages=stages))
        assert isinstance(found, Rejection) and found.message


def test_the_stage_with_the_head_may_have_fewer_layers() -> None:
    """Where the last stage also computes the head, a layer less there makes the step shorter."""
    ticks = _step(head=100)
    even, uneven = (run_step(ticks, StepSchedule("s", stages=sizes), 2, 8) for sizes in ((4, 4), (5, 3)))
    assert uneven.makespan_ticks < even.makespan_ticks


@given(
    st.sampled_from(list(PipelineKind)),
    st.sampled_from([0, 1, 3]),
    st.lists(st.integers(1, 400), min_size=5, max_size=5),
    st.sampled_from([2, 4]),
)
def test_overlap_is_never_slower(kind: PipelineKind, zero: int, sizes: list[int], stages: int) -> None:
    """Traffic beside the passes that takes nothing from them never makes a step longer, and the bubble is a share."""
    layer, microbatches = LayerTicks(*sizes), 4 * stages
    pipeline = Pipeline(kind, 2 if kind is PipelineKind.INTERLEAVED else 1)
    apart, beside = (
        run_step(_step(16, layer), StepSchedule("s", pipeline, zero=zero, overlapped=some), stages, microbatches)
        for some in ((), BOTH)
    )
    assert beside.makespan_ticks <= apart.makespan_ticks
    for run in (apart, beside):
        assert 0 <= run.bubble < 1 and 0 <= run.exposed < 1
        assert run.makespan_ticks >= microbatches * 16 // stages * layer.forward


@pytest.mark.parametrize("kind", [PipelineKind.ONE_F_ONE_B, PipelineKind.ZERO_BUBBLE])
def test_by_its_period_a_step_is_what_it_is_in_full(kind: PipelineKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of many microbatches has the same time and exposed traffic whether all are run or some."""
    schedule = StepSchedule("s", Pipeline(kind), overlapped=BOTH)
    whole = run_step(_step(), schedule, 4, 400)
    monkeypatch.setattr("magus.simcore.steps.pipeline.MOST_TASKS", 10)
    monkeypatch.setattr("magus.simcore.steps.pipeline.run_pipeline.__defaults__", (10,))
    some = run_step(_step(), schedule, 4, 400)
    assert some.pipeline.simulated < whole.pipeline.simulated
    assert (some.makespan_ticks, some.gradients_ticks) == (whole.makespan_ticks, whole.gradients_ticks)
