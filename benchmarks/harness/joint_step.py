"""A whole step as one program of all ranks: what the time composed of layers, traffic and an order is to be.

Its parts are the layers of every stage and microbatch, forward and backward, what stages send, the traffic of weights
and gradients, and the update of the weights. They follow each other as the schedule says, on the SMs, memory and ports
of their ranks. Steps have one kind of layers, on groups of the axis ``tp``, copies along ``dp``, and no last product.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest

from magus.advisor.layers.beside import SharedTraffic, some_parts, traffic_plan
from magus.advisor.layers.joint import COARSE_BYTES
from magus.advisor.steps.layer_times import LayerTimes, PassOf, for_seconds, of_weights
from magus.advisor.steps.outcome import chunks_of, outcome_of, updated_of
from magus.advisor.steps.plans import send_plan
from magus.advisor.steps.times import held_by, ticks_of
from magus.compiler import compile_text
from magus.compiler.ir import (
    Pattern,
    Plan,
    Scenario,
    System,
)
from magus.compiler.ir.step import ChunkPass, Overlapped, PassKind, StepScenario, StepSchedule, handed_on
from magus.simcore.cores.engine import run
from magus.simcore.lower.beside import OnGroup, Together, builder_for
from magus.simcore.program.builder import GroupRanks
from magus.simcore.program.program import OpKind, OpSpec, Stage
from magus.simcore.steps.orders import Slot, chunks_at, rank_of
from magus.simcore.steps.pipeline import SlotInterval

LAYER = """use "nvidia/h100"
system node {{ gpus 8 x H100; fabric switch(nvswitch, link=nvlink); mesh tp {tp}, dp {dp}, pp {pp} }}
workload layer on node.tp {{
  x = tensor bf16[4096, 8192] shard rows
  w = tensor bf16[8192, 28672] shard cols
  v = tensor bf16[28672, 8192] shard rows
  u = gemm(all_gather(norm(x)), w)
  y = add(x, reduce_scatter(gemm(gelu(u), v)))
  repeat {layers} y as x
}}
workload train on node {{ step layer; sequences {sequences} x 4096 }}
"""
"""A step of layers of one MLP on eight GPUs of a node."""

Ops = tuple[range, ...]

BACKWARD = (PassKind.BACKWARD, PassKind.INPUTS, PassKind.WEIGHTS)


def step_of(tp: int, dp: int, pp: int, *, layers: int = 8, microbatches: int = 4) -> StepScenario:
    """Return the step of ``LAYER`` on these axes, the product of whose sizes is eight."""
    found = compile_text(LAYER.format(tp=tp, dp=dp, pp=pp, layers=layers, sequences=microbatches * dp)).step()
    assert found is not None, "the text has a step"
    return found


def joint_ticks(
    scenario: StepScenario,
    schedule: StepSchedule,
    times: LayerTimes,
    unit_bytes: int = COARSE_BYTES,
    *,
    fold: bool = True,
) -> tuple[int, int]:
    """Return the time of a step as it is composed, and of one program of all its ranks, in ticks.

    Parameters
    ----------
    times
        Of layers, by which it is composed; their order is that of the program.
    unit_bytes
        The packets of the program.
    fold
        Whether one rank of each stage is written for all, which are alike.
    """
    composed = outcome_of(scenario, schedule, times).run
    step = _JointStep(scenario, schedule, unit_bytes, fold)
    for interval in sorted(composed.pipeline.intervals, key=lambda each: (each.begin_ticks, each.rank)):
        step.add(interval)
    updated = updated_of(scenario, schedule, chunks_of(scenario, schedule))
    step.update(ticks_of(scenario, schedule, times, updated).optimizer)
    return composed.makespan_ticks, run(step.builder.build()).makespan_ticks


class _JointStep:
    """The program so far. Of each stage ``last`` is what its kernels follow, and ``moved`` what its traffic does."""

    def __init__(self, scenario: StepScenario, schedule: StepSchedule, unit_bytes: int, fold: bool) -> None:
        self._schedule, self._microbatches = schedule, scenario.step.microbatches
        self._stages, chunks = scenario.num_stages, chunks_of(scenario, schedule)
        ends = [sum(chunks[: number + 1]) for number in range(len(chunks))]
        self._layers = [range(end - count, end) for end, count in zip(ends, chunks, strict=True)]
        (block,) = scenario.step.blocks
        (part,) = block.parts
        held = next(iter(held_by(part)))
        weight, gradient = handed_on(part.forward).dtype, scenario.step.optimizer.gradients
        back = part.back(schedule.keep)
        self._forward, self._backward = _pass(part.forward), _pass(back)
        apart = of_weights(back.workload)
        self._inputs, self._weights = _some(self._backward, apart, of=False), _some(self._backward, apart, of=True)
        self._send = None if scenario.stages is None else _sent(scenario.stages, part.forward)
        self._gather = self._sum = None
        if part.copies is not None:
            summed = Pattern.REDUCE_SCATTER if schedule.zero else Pattern.ALL_REDUCE
            copies = for_seconds(part.copies, None)
            self._sum = _traffic(SharedTraffic(copies, summed, gradient, held.parameters))
            self._gather = _traffic(SharedTraffic(copies, Pattern.ALL_GATHER, weight, held.parameters))
        # Stages are neighbours: of each one rank, or all.
        sizes = {axis.name: axis.size for axis in scenario.system.mesh}
        self._axes = {"tp": (self._stages, sizes["tp"]), "dp": (self._stages * sizes["tp"], sizes.get("dp", 1))}
        self._ranks = 1 if fold else sizes["tp"] * sizes.get("dp", 1)
        self.builder = builder_for(self._stages * self._ranks, scenario.system.num_ranks, unit_bytes)
        passes = (self._forward, self._backward, self._inputs, self._weights)
        plans = [each for each in (*passes, self._send, self._gather, self._sum) if each is not None]
        self._together = Together(self.builder, list(dict.fromkeys(plans)), unit_bytes)
        self.last: list[Ops] = [()] * self._stages
        self.moved: list[Ops] = [()] * self._stages
        self._done: dict[tuple[bool, int, int, int], Ops] = {}  # by direction, path, chunk, microbatch
        self._gathered: dict[int, Ops] = {}  # by layer, before its first pass
        self._summed: list[Ops] = []

    # What is lowered, for all groups of a stage.

    def _on_stage(self, on: OnGroup, stage: int, axis: str, after: Iterable[range]) -> Ops:
        """One of the plans for all groups of a stage along an axis."""
        stride, size = self._axes[axis]
        ranks = (stage + self._stages * each for each in range(self._ranks))
        firsts = [rank for rank in ranks if (rank - stage) // stride % size == 0]
        groups = [GroupRanks(first, stride, size, min(size, self._ranks)) for first in firsts]
        return self._together.lower(on, groups, after)

    def _sent(self, stage: int, to: int, after: Ops) -> Ops:
        if stage == to or self._send is None:
            return after
        pairs = [GroupRanks(stage + self._stages * each, to - stage, 2, 2) for each in range(self._ranks)]
        return self._together.lower(self._send, pairs, after)

    def _traffic(self, on: OnGroup | None, stage: int, after: Ops) -> Ops:
        """Traffic behind what was moved before, and behind what it moves."""
        if on is None:
            return after
        self.moved[stage] = self._on_stage(on, stage, "dp", (*self.moved[stage], *after))
        return self.moved[stage]

    # The order.

    def add(self, interval: SlotInterval) -> None:
        """The passes that a stage computes at once."""
        if not self._done:
            self._gather_all()
        stage, first = interval.rank, interval.slot[0]
        taken = tuple(op for task in interval.slot for op in self._taken(task))
        layers = self._layers[first.chunk] if first.work is PassKind.FORWARD else self._layers[first.chunk][::-1]
        if len(interval.slot) > 1:
            ended = self._beside(interval.slot, stage, taken)
        elif self._schedule.zero == 3:
            ended = self._shared(first, stage, layers, taken)
        else:
            ended = self._pass(first, stage, layers, taken)
        self.last[stage] = ended
        for task in interval.slot:
            if task.work is not PassKind.WEIGHTS:
                self._hand_on(task, stage, ended)

    def _hand_on(self, task: ChunkPass, stage: int, ended: Ops) -> None:
        """Send what a pass makes to the stage that goes on with it."""
        is_forward = task.work is PassKind.FORWARD
        ends_here = task.chunk == (len(self._layers) - 1 if is_forward else 0)
        to = stage if ends_here else rank_of(task.path, task.chunk + (1 if is_forward else -1), self._stages)
        self._done[is_forward, task.path, task.chunk, task.microbatch] = self._sent(stage, to, ended)

    def _beside(self, slot: Slot, stage: int, taken: Ops) -> Ops:
        """A pass forward beside one backward: layer beside layer, behind the two before."""
        ended = (*self.last[stage], *taken)
        for layers in zip_longest(*(self._layers[task.chunk] for task in slot)):
            here = (task for task, layer in zip(slot, layers, strict=True) if layer is not None)
            ended = tuple(op for task in here for op in self._on_stage(self._plan(task), stage, "tp", ended))
        return ended

    def _taken(self, task: ChunkPass) -> Ops:
        """What a pass of a chunk takes of another one."""
        if task.work is PassKind.WEIGHTS or (task.work is PassKind.FORWARD and task.chunk == 0):
            return ()
        if task.work is PassKind.FORWARD:
            return self._done[True, task.path, task.chunk - 1, task.microbatch]
        if task.chunk == len(self._layers) - 1:
            return ()  # of its own forward pass, which came before
        return self._done[False, task.path, task.chunk + 1, task.microbatch]

    def _gather_all(self) -> None:
        """Weights that are gathered beside the first passes, in the order in which these take them."""
        if self._schedule.zero in (1, 2) and Overlapped.WEIGHTS in self._schedule.overlapped:
            for chunk, layers in enumerate(self._layers):
                for layer in layers:
                    self._gathered[layer] = self._traffic(self._gather, chunk % self._stages, ())

    def _pass(self, task: ChunkPass, stage: int, layers: Iterable[int], taken: Ops) -> Ops:
        """A pass of the layers of a chunk, and the sums of gradients beside the last one."""
        is_last = task.microbatch == self._microbatches - 1 and task.work in (PassKind.BACKWARD, PassKind.WEIGHTS)
        ended = (*self.last[stage], *taken)
        for layer in layers:
            gathered = self._gathered.pop(layer, ()) if task.work is PassKind.FORWARD else ()
            ended = self._on_stage(self._plan(task), stage, "tp", (*ended, *gathered))
            if is_last and Overlapped.GRADIENTS in self._schedule.overlapped:
                self._summed.append(self._traffic(self._sum, stage, ended))
        return ended

    def _plan(self, task: ChunkPass) -> OnGroup:
        plans = dict(zip(BACKWARD, (self._backward, self._inputs, self._weights), strict=True))
        return plans.get(task.work, self._forward)

    def _shared(self, task: ChunkPass, stage: int, layers: Iterable[int], taken: Ops) -> Ops:
        """A pass whose weights are gathered for each layer, and whose gradients are scattered behind each (ZeRO-3)."""
        beside, sums = self._schedule.overlapped, task.work in (PassKind.BACKWARD, PassKind.WEIGHTS)
        ended = (*self.last[stage], *taken)
        begun, made = ended, None
        for _ in layers:
            # Weights are gathered from when the layer before begins, else when it has ended; for what takes them.
            ahead = begun if Overlapped.WEIGHTS in beside else ended
            gathered = self._traffic(self._gather, stage, ahead) if task.work is not PassKind.WEIGHTS else ()
            if made is not None and Overlapped.GRADIENTS in beside:
                self._traffic(self._sum, stage, made)
            begun = (*ended, *gathered)
            ended = made = self._on_stage(self._plan(task), stage, "tp", begun)
            if sums and Overlapped.GRADIENTS not in beside:
                ended = self._traffic(self._sum, stage, ended)
            if not sums or Overlapped.GRADIENTS not in beside:
                made = None
        return ended if made is None else (*ended, *self._traffic(self._sum, stage, made))

    def update(self, optimizer: tuple[int, ...]) -> None:
        """The sums of gradients that come last, the update, and the weights that are gathered behind it."""
        zero, beside = self._schedule.zero, self._schedule.overlapped
        before = [*self.last, *self._summed]
        if zero < 3 and Overlapped.GRADIENTS not in beside:
            for stage, layers in self._owned():
                for _ in layers:
                    before.append(self._traffic(self._sum, stage, self.last[stage]))
        holds = [optimizer[min(stage, len(optimizer) - 1)] for stage in range(self._stages)]
        done = [
            self.builder.op(rank, OpSpec(OpKind.TILE, "update", (Stage(holds[rank % self._stages]),)))
            for rank in range(self._ranks * self._stages)
        ]
        awaited = [op for ops in before for each in ops for op in each]
        for op in done:
            self.builder.after(op, awaited)
        if zero in (1, 2) and Overlapped.WEIGHTS not in beside:
            for stage, layers in self._owned():
                for _ in layers:
                    self._traffic(self._gather, stage, tuple(done))

    def _owned(self) -> Iterable[tuple[int, range]]:
        """The layers of each chunk, for each stage that has it."""
        for stage in range(self._stages):
            for chunk in chunks_at(self._schedule.pipeline, stage, self._stages):
                yield stage, self._layers[chunk]


def _pass(scenario: Scenario) -> OnGroup:
    """One layer as a step has it."""
    return PassOf(scenario).question().layer.placed()


def _some(on: OnGroup, apart: frozenset[str], *, of: bool) -> OnGroup:
    """The parts of a backward pass that make gradients of weights, or the others."""
    return replace(on, plan=some_parts(on.plan, apart, of=of))


def _sent(stages: System, forward: Scenario) -> OnGroup:
    """What a rank of one stage sends to one of the next."""
    case, plan = send_plan(for_seconds(stages, None), forward)
    return OnGroup(case.system, Plan.of_one("send", case.shape, plan))


def _traffic(traffic: SharedTraffic) -> OnGroup:
    """Traffic among ranks that hold the same weights, in a stream of its own."""
    case, schedule = traffic_plan(traffic)
    return OnGroup(traffic.ranks, Plan.of_one(traffic.pattern.value, case.shape, schedule))
