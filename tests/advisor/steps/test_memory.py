"""Memory of a step: by states, by microbatches in flight, and what fits."""

from dataclasses import replace

from magus.advisor.steps.outcome import chunks_of, memory_of, most_held
from magus.advisor.steps.times import held_by
from magus.compiler.ir.step import KEEP_LEAST, Pipeline, PipelineKind, StepSchedule, weights_of
from magus.simcore.steps.orders import orders_of
from tests.helpers.steps import small_step

WEIGHTS = 8 * 2 * 1024 * 4096
"""Of all layers."""

ENDS = 8192 * 1024
"""Of the embedding, and as many of the last product."""


def test_states_are_those_of_the_ranks_that_share_them() -> None:
    """All are shared by TP and PP; ranks that hold the same also share the optimizer, then gradients, then weights.

    Weights that they share are the master copies, 4 bytes each, and there is no other.
    """
    step = small_step(ROWS=1024)
    plain, one, two, three = (memory_of(step, StepSchedule("s", zero=zero), (4, 4))[0] for zero in range(4))
    held = WEIGHTS // 2 // 2 + ENDS // 2
    assert (plain.weights, plain.gradients, plain.optimizer) == (2 * held, 4 * held, 12 * held)
    assert (one.weights, one.gradients, one.optimizer) == (2 * held, 4 * held, 6 * held)
    assert (two.weights, two.gradients, two.optimizer) == (2 * held, 2 * held, 6 * held)
    assert (three.weights, three.gradients, three.optimizer) == (4 * held // 2, 2 * held, 8 * held // 2)


def test_gathered_weights_are_those_of_two_layers_and_of_the_ends() -> None:
    """The embedding is gathered on the first stage and the last product on the last, as long as layers are computed."""
    step = small_step(ROWS=1024)
    plain, shared = (memory_of(step, StepSchedule("s", zero=zero), (4, 4)) for zero in (2, 3))
    layer = 2 * 1024 * 4096 // 2
    assert [after.transient - before.transient for before, after in zip(plain, shared, strict=True)] == [
        2 * (2 * layer + ENDS // 2)
    ] * 2


def test_the_loss_goes_back_beside_its_logits() -> None:
    """The last stage makes no layer anew meanwhile, so that the larger of both counts.

    In 32 bits are the softmax and the gradients of its result and input, and where ranks cut the vocabulary one more;
    in 16 bits the logits, and what their product takes, of all rows.
    """
    for tp, tensors in ((1, 3), (2, 4)):
        step = small_step(ROWS=1024, TP=tp)
        first, last = memory_of(step, StepSchedule("s"), (4, 4))
        assert last.transient == 1024 * 8192 // tp * (4 * tensors + 2) + 1024 * 1024 * 2 > first.transient


def test_a_stage_keeps_the_microbatches_in_flight() -> None:
    """The first of two stages holds two microbatches of its four layers: input and product of each, in 16 bits."""
    step = small_step(ROWS=1024)
    first, last = memory_of(step, StepSchedule("s"), (4, 4))
    kept = (1024 * 1024 + 1024 * 4096) * 2 // 2
    assert (first.activations, last.activations) == (2 * 4 * kept, 4 * kept)
    least, _ = memory_of(step, StepSchedule("s", keep=KEEP_LEAST), (4, 4))
    assert least.activations == 2 * 4 * 1024 * 1024 * 2 // 2
    assert least.transient > first.transient


def test_a_layer_of_two_workloads_keeps_its_input_once() -> None:
    """What the second one takes is made again by the first; kept as a whole it is there twice."""
    step = small_step(ROWS=1024)
    (block,) = step.step.blocks
    twice = replace(step, step=replace(step.step, blocks=(replace(block, parts=block.parts * 2),)))
    for keep, times in ((KEEP_LEAST, 1), ("all", 2)):
        one, two = (memory_of(each, StepSchedule("s", keep=keep), (4, 4))[0] for each in (step, twice))
        assert two.activations == times * one.activations


def test_pipelines_hold_what_their_papers_say() -> None:
    """1F1B and ZB-H1 hold as many as there are stages, interleaved (1 + (p - 1) / (p v)) times as many, dual p + 1."""
    for kind, chunks, most in (
        (PipelineKind.ONE_F_ONE_B, 1, 4),
        (PipelineKind.ZERO_BUBBLE, 1, 4),
        (PipelineKind.INTERLEAVED, 2, 4 * 2 + 3),
        (PipelineKind.DUAL, 1, 5),
    ):
        orders = orders_of(Pipeline(kind, chunks), 4, 32)
        assert max(most_held([1] * (4 * chunks), orders)) == most, kind


def test_each_rank_has_its_part_of_weights() -> None:
    """A group of one rank has all; the ranks that hold the same are those of the other axes."""
    one, two = (small_step(TP=tp, PP=2).step.blocks[0].parts[0] for tp in (1, 2))
    assert [(each.parameters, each.copies) for each in held_by(one)] == [(2 * 1024 * 4096, 4)]
    assert [(each.parameters, each.copies) for each in held_by(two)] == [(1024 * 4096, 2)]
    assert [each.name for each in weights_of(two.forward)] == ["w", "v"]


def test_what_fits_does_to_the_byte() -> None:
    """A step fits into the memory that it needs, and not into a byte less."""
    step, schedule = small_step(), StepSchedule("s")
    needed = max(stage.total for stage in memory_of(step, schedule, chunks_of(step, schedule)))
    for limit, fits in ((needed, True), (needed - 1, False)):
        limited = replace(step, explore=replace(step.explore, memory_bytes=limit))
        assert (needed <= (limited.explore.memory_bytes or 0)) is fits
