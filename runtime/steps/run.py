"""A step carried out with real data in this process, and compared with the serial step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from threading import Lock

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import Reduction, Rejection, TileGroup, Transfer
from ...compiler.ir.step import ChunkPass, PassKind
from ..board import Board, HoldPolicy, Moment, work_through
from ..execute import stuck_sentences
from ..memory import Array, Fault
from ..operands import MODULUS
from ..report import MAX_NAMED, MAX_STEPS, Outcome, RunRefused, RunReport, SeedRun
from ..tasks import Task
from .build import (
    MAKES_GRADIENTS,
    LayerTask,
    StageTask,
    after_step,
    gradients_of,
    named,
    pieces_of,
    room_of,
    tasks_of_step,
)
from .context import carried_in_parts
from .serial import Flat, SerialStep, StepMemory, by_rank, check_ops, first_weights, gradient_of, part_shape, updated
from .work import GroupWork, StepWork, Values, WeightSet, split

KINDS = (Transfer, TileGroup, Reduction)


def carry_out_step(job: StepWork, seeds: Iterable[int] = range(3)) -> RunReport:
    """Carry a step out, once for each of ``seeds`` until a run fails, and compare weights with those of a serial step.

    All numbers are whole up to the gradients, and the update is the same for each element, so that equal means equal.

    Raises
    ------
    RunRefused
        If it cannot be carried out here.
    """
    for work in (job.forward, *job.backward):
        check_ops(work.workload)
    if job.num_steps > MAX_STEPS:
        message = f"the step has {job.num_steps:,} steps of plans over all ranks, {MAX_STEPS:,} at most are carried out"
        raise RunRefused(Rejection(Code.MGS540, message, "--set parameters to fewer ranks, sequences or layers"))
    done: list[SeedRun] = []
    counts = Counter[type]()
    for seed in seeds:
        run = CarriedStep(job, seed)
        run.work()
        done.append(SeedRun.of(seed, *run.found()))
        counts = counts or run.counts
        if done[-1].outcome is not Outcome.EXACT:
            break
    copies, kernels, sums = (counts[kind] for kind in KINDS)
    return RunReport(job.expression, job.num_ranks, copies, kernels, sums, tuple(done), job.num_layers)


class CarriedStep:
    """One run of a step: ``tasks`` may be changed before ``work``, and ``counts`` has the steps of plans by kind."""

    def __init__(self, job: StepWork, seed: int) -> None:
        self._job, self._seed = job, seed
        self._flats = tuple((each, Flat(job, each)) for each in job.sets)
        self.serial = SerialStep(job, seed)
        self.counts: Counter[type] = Counter()
        self.tasks: tuple[StageTask, ...] = tasks_of_step(job, self)
        self._memory = StepMemory(self.tasks)
        self._policy, self._lock = HoldPolicy(seed), Lock()
        self._made: dict[tuple[WeightSet, int, int, int], Array] = {}  # gradients, by rank, layer and microbatch
        for pipeline in range(job.pipelines):
            for stage in range(job.num_stages):
                self._make_room(stage, pipeline)
        for first in range(0, job.pipelines, job.parts):
            for microbatch in range(job.microbatches):
                pieces = np.split(self.serial.input(first, microbatch), job.parts)
                for pipeline, piece in zip(job.sharing(first), pieces, strict=True):
                    self._place_input(pipeline, microbatch, piece)

    # A run.

    def work(self) -> None:
        """Carry out all tasks until they are done, or stand still, or something fails."""
        threads = {task.queue: 1 for task in self.tasks}
        self._board = Board(self.tasks, self._job.num_ranks, threads, self._seed)
        work_through(self._board, self._carry_out, threads)

    def _carry_out(self, task: Task) -> None:
        assert isinstance(task, StageTask) and task.act is not None, "all tasks of a step are"
        self._pause(task, Moment.BEGIN)
        task.act(task)
        self._board.reach((task.rank, task.step.name), task)

    def _pause(self, task: Task, moment: Moment) -> None:
        if self._policy.holds(task, moment):
            self._board.hold(task)

    def found(self) -> tuple[Outcome, list[str]]:
        """Return what became of the run, with sentences for what is wrong, one more than are shown.

        An error that says nothing of the step is raised.
        """
        if isinstance(self._board.error, Fault):
            return Outcome.FAULT, [str(self._board.error)]
        if self._board.error is not None:
            raise self._board.error
        if self._board.stuck:
            return Outcome.DEADLOCK, stuck_sentences(self._board.stuck, self.tasks, self._job.num_ranks)
        wrong = self._differences()
        sentences = [sentence for sentence, _ in zip(wrong, range(MAX_NAMED + 1), strict=False)]
        return Outcome.WRONG if sentences else Outcome.EXACT, sentences

    # What there is at first.

    def _ranks(self, stage: int, pipeline: int) -> tuple[int, ...]:
        return tuple(self._job.rank(stage, pipeline, place) for place in range(self._job.forward.num_ranks))

    def _place_input(self, pipeline: int, microbatch: int, whole: Array) -> None:
        tensor = next(each for each in self._job.forward.workload.tensors if each.name == self._job.taken)
        ranks = self._ranks(self._job.stage_of(microbatch, 0), pipeline)
        for rank, part in zip(ranks, split(whole, tensor.shard, len(ranks)), strict=True):
            self._memory.make(rank, named(tensor.name, 0, microbatch), part.shape, part)

    def _make_room(self, stage: int, pipeline: int) -> None:
        """Room for all that passes of a stage take and make, and its weights."""
        passes = list(room_of(self._job, stage))
        for place, rank in enumerate(self._ranks(stage, pipeline)):
            for each in passes:
                for work, name in self._made_by(each):
                    tensor = named(name, each.layer, each.microbatch)
                    self._memory.make(rank, tensor, part_shape(work, name))
            for layer in dict.fromkeys(each.layer for each in passes):
                self._make_weights(stage, pipeline, place, layer, [each for each in passes if each.layer == layer])

    def _made_by(self, each: LayerTask) -> Iterator[tuple[GroupWork, str]]:
        job = self._job
        if each.work is PassKind.FORWARD:
            for name in (job.taken, job.handed_on, *job.kept):
                yield job.forward, name
        elif each.work is not PassKind.WEIGHTS:
            for name in (*job.gradient, *job.between):
                yield job.backward[0], name

    def _make_weights(self, stage: int, pipeline: int, place: int, layer: int, passes: Sequence[LayerTask]) -> None:
        job, rank = self._job, self._job.rank(stage, pipeline, place)
        gathers = job.is_shared and (job.zero == 3 or job.gathers_beside)
        for each, flat in self._flats:
            make, shape, row = partial(self._make, each, rank), flat.shape, job.own_row(each, stage, pipeline, place)
            piece = (1, shape[1]) if job.shares(each) else shape
            first = flat.whole(first_weights(job, self.serial, layer))[place]
            make(pieces_of(layer), piece if gathers else shape, first[row] if gathers else first)
            make(f"all {pieces_of(layer)}", shape)
            for task in passes:
                make(f"{pieces_of(layer)} for {task.name}", shape)
                make(gradients_of(layer, task.microbatch), shape, np.zeros(shape))
            make(gradients_of(layer), shape, np.zeros(shape))
            make(f"sum of {gradients_of(layer)}", piece, np.zeros(piece) if job.zero == 3 else None)
            make(after_step(layer), piece)
            make(after_step(layer, gathered=True), shape)

    def _make(self, of: WeightSet, rank: int, name: str, shape: tuple[int, int], values: Array | None = None) -> None:
        self._memory.make(rank, of.named(name), shape, values)

    # What tasks do.

    def _carried(self, work: GroupWork, given: Values, wanted: Iterable[str], task: StageTask) -> Values:
        """Carry a plan out; a Fault names the task too."""
        try:
            found = work.carried_out(given, wanted, self._seed)
        except Fault as error:
            raise Fault(f"{task}: {error}") from None
        with self._lock:
            self.counts.update(
                type(step)
                for part in work.plan.parts
                for rank in range(work.num_ranks)
                for step in part.schedule.steps_of(rank)
            )
        return found

    def _in_parts(
        self, work: GroupWork, given: Sequence[Values], wanted: Iterable[str], task: StageTask
    ) -> list[Values]:
        """Carry a pass out, of each part of its sequences."""
        return carried_in_parts(work, given, wanted, self._seed, partial(self._carried, task=task))

    def _read(self, ranks: Iterable[int], name: str, task: StageTask) -> tuple[Array, ...]:
        return tuple(self._memory.read(rank, name, task) for rank in ranks)

    def _write(self, ranks: Iterable[int], name: str, values: Iterable[Array], task: StageTask) -> None:
        for rank, part in zip(ranks, values, strict=True):
            self._memory.write(rank, name, part, task)

    def run_pass(self, each: LayerTask, taken: str, weights: str, task: StageTask) -> None:
        """A pass of a layer, which takes the tensor ``taken`` and weights of that name."""
        job, groups = self._job, [self._ranks(task.stage, pipeline) for pipeline in self._job.sharing(task.pipeline)]
        values, forward = [self._read(ranks, taken, task) for ranks in groups], each.work is PassKind.FORWARD
        given = [self._weights(weights, ranks, task) for ranks in groups]
        if forward:
            given = [known | {job.taken: own} for known, own in zip(given, values, strict=True)]
            made = self._in_parts(job.forward, given, (job.handed_on, *(() if job.again else job.kept)), task)
            if taken != named(job.taken, each.layer, each.microbatch):
                made = [found | {job.taken: own} for found, own in zip(made, values, strict=True)]
        else:
            given = [known | {job.gradient[0]: own} for known, own in zip(given, values, strict=True)]
            made = self._backward(each, groups, given, task)
        self._pause(task, Moment.END)
        for ranks, found in zip(groups, made, strict=True):
            gradients = {name: found.pop(gradient_of(name)) for name in job.weights if gradient_of(name) in found}
            for name, whole in found.items():
                self._write(ranks, named(name, each.layer, each.microbatch), (part % MODULUS for part in whole), task)
            if each.work in MAKES_GRADIENTS:
                self._add(each, gradients, ranks, task)

    def _weights(self, name: str, ranks: Sequence[int], task: StageTask) -> Values:
        """The weights of a layer at the ranks of a group."""
        found: Values = {}
        for of, flat in self._flats:
            parts = [flat.parts(values) for values in self._read(ranks, of.named(name), task)]
            found |= {weight: tuple(part[weight] for part in parts) for weight in of.names}
        return found

    def _backward(
        self, each: LayerTask, groups: Sequence[tuple[int, ...]], given: Sequence[Values], task: StageTask
    ) -> list[Values]:
        """What a backward pass makes of gradients, what was kept, and weights, by part of its sequences."""
        job, is_again = self._job, self._job.again and each.work is not PassKind.WEIGHTS
        names, wanted = [job.taken, *(() if is_again else job.kept)], list[str]()
        if each.work is PassKind.WEIGHTS:
            names += job.between
        else:
            wanted += [job.gradient[1], *job.between]
        if each.work in MAKES_GRADIENTS:
            wanted += [gradient_of(name) for name in job.weights]
        known = [
            own | {name: self._read(ranks, named(name, each.layer, each.microbatch), task) for name in names}
            for own, ranks in zip(given, groups, strict=True)
        ]
        again = list[Values]()
        for found in self._in_parts(job.forward, known, job.kept, task) if is_again else [{}] * len(known):
            again.append({name: tuple(part % MODULUS for part in parts) for name, parts in found.items()})
        known = [own | more for own, more in zip(known, again, strict=True)]
        work = job.backward[-1 if each.work is PassKind.WEIGHTS else 0]
        return [own | more for own, more in zip(self._in_parts(work, known, wanted, task), again, strict=True)]

    def _add(self, each: LayerTask, gradients: Values, ranks: Sequence[int], task: StageTask) -> None:
        """Add the gradients of a microbatch to those of others, or leave them to be scattered."""
        alone = self._job.zero == 3 and self._job.has_sums
        own = {name.removeprefix("d_"): parts for name, parts in gradients.items()}
        for of, flat in self._flats:
            name = of.named(gradients_of(each.layer, each.microbatch if alone else None))
            sums = self._read(ranks, name, task)
            made = [flat.of(by_rank(own, place)) % MODULUS for place in range(len(ranks))]
            self._write(ranks, name, ((old + new) % MODULUS for old, new in zip(sums, made, strict=True)), task)
            for rank, values in zip(ranks, made, strict=True):
                self._made[of, rank, each.layer, each.microbatch] = values

    def run_send(self, sent: ChunkPass, taken: ChunkPass | None, to: int, task: StageTask) -> None:
        """A send, to what is ``taken`` there."""
        job, forward = self._job, sent.work is PassKind.FORWARD
        layers = job.layers[sent.chunk]
        made = named(job.handed_on if forward else job.gradient[1], layers[-1 if forward else 0], sent.microbatch)
        assert job.send is not None, "there are several stages"
        for of, rank in zip(self._ranks(task.stage, task.pipeline), self._ranks(to, task.pipeline), strict=True):
            values = self._memory.read(of, made, task)
            arrived = self._carried(job.send, {_MOVED: (values, values)}, [""], task)[""][1]
            self._pause(task, Moment.END)
            if taken is not None:
                layers = job.layers[taken.chunk]
                name, layer = (job.taken, layers[0]) if forward else (job.gradient[0], layers[-1])
                self._memory.write(rank, named(name, layer, taken.microbatch), arrived, task)

    def _among_holders(
        self, work: GroupWork | None, of: WeightSet, name: str, task: StageTask
    ) -> Iterator[tuple[int, Array]]:
        """Yield what a collective of some weights leaves at each rank of a stage; without one what there is."""
        for ranks in self._job.holders(of, task.stage):
            found = self._read(ranks, of.named(name), task)
            if work is not None:
                found = self._carried(work, {_MOVED: found}, [""], task)[""]
            yield from zip(ranks, found, strict=True)

    def run_gather(self, layer: int, pieces: str, into: str, task: StageTask) -> None:
        """The weights of a layer, gathered among the ranks that hold the same."""
        found = [(of, list(self._among_holders(of.gathers, of, pieces, task))) for of, _ in self._flats]
        self._pause(task, Moment.END)
        for of, values in found:
            for rank, each in values:
                self._memory.write(rank, of.named(into), each, task)

    def run_sum(self, layer: int, gradients: str, task: StageTask) -> None:
        """The gradients of a layer, summed among the ranks that hold the same weights."""
        found = [(of, list(self._among_holders(of.sums, of, gradients, task))) for of, _ in self._flats]
        self._pause(task, Moment.END)
        for of, values in found:
            name = of.named(f"sum of {gradients_of(layer)}")
            for rank, each in values:
                before = self._memory.read(rank, name, task) if self._job.zero == 3 else 0
                self._memory.write(rank, name, (each + before) % MODULUS, task)

    def run_join(self, layer: int, task: StageTask) -> None:
        """What two stages with the same layers have of the gradients of one, summed."""
        job, found = self._job, list[tuple[int, str, Array]]()
        for (of, _), pipeline, place in product(self._flats, range(job.pipelines), range(job.forward.num_ranks)):
            ranks = [job.rank(stage, pipeline, place) for stage in job.mates(task.stage)]
            name, halves = of.named(self._summed(layer)), list[Array]()
            for own in self._read(ranks, name, task):
                flat = own.ravel()
                halves.append(np.concatenate([flat, np.zeros(flat.size % 2)]).reshape(2, -1))
            assert of.joins is not None, "the stages gather weights apart"
            for rank, half in zip(ranks, self._carried(of.joins, {_MOVED: tuple(halves)}, [""], task)[""], strict=True):
                found.append((rank, name, half.ravel()[: flat.size].reshape(own.shape)))
        self._pause(task, Moment.END)
        for rank, name, values in found:
            self._memory.write(rank, name, values % MODULUS, task)

    def _summed(self, layer: int) -> str:
        """The name of the gradients that weights of a layer are updated by."""
        return f"sum of {gradients_of(layer)}" if self._job.has_sums else gradients_of(layer)

    def run_update(self, layers: tuple[int, ...], task: StageTask) -> None:
        """The update of the weights of a stage."""
        job = self._job
        for layer, (of, flat) in product(layers, self._flats):
            pairs = [self.serial.moments(layer, name) for name in of.names]
            moments = [
                flat.whole({name: pair[number] for name, pair in zip(of.names, pairs, strict=True)})
                for number in (0, 1)
            ]
            name = of.named(self._summed(layer))
            for place, rank in enumerate(self._ranks(task.stage, task.pipeline)):
                row = job.own_row(of, task.stage, task.pipeline, place)
                gradients = self._memory.read(rank, name, task)
                own = self._memory.read(rank, of.named(pieces_of(layer)), task)
                first, second = (each[place][row] for each in moments)
                own = own if len(own) == len(first) else own[row]
                self._memory.write(rank, of.named(after_step(layer)), updated(own, gradients, (first, second)), task)

    # What there must be.

    def _differences(self) -> Iterator[str]:
        """Yield which weights are not those of the serial step, and the first microbatch that has to do with it."""
        job = self._job
        gathered = job.is_shared and job.zero < 3 and not job.gathers_beside
        for stage, pipeline, (of, flat) in product(range(job.num_stages), range(job.pipelines), self._flats):
            for place, rank in enumerate(self._ranks(stage, pipeline)):
                row = slice(None) if gathered else job.own_row(of, stage, pipeline, place)
                for layer in dict.fromkeys(each.layer for each in room_of(job, stage)):
                    wanted = flat.whole(self.serial.weights[layer])[place][row]
                    found = self._memory.look(rank, of.named(after_step(layer, gathered=gathered)))
                    differs = np.argwhere(found != wanted)
                    if len(differs):
                        line, col = (int(index) for index in differs[0])
                        name, at, col_of = flat.place(line + (row.start or 0), col)
                        where = f"row {at}, column {col_of} of {name} of layer {layer}"
                        what = f"{found[line, col]:.6g} in place of {wanted[line, col]:.6g}"
                        cause = self._cause(of, flat, stage, place, layer)
                        yield f"rank {rank} (stage {stage}) has {what} in {where}{cause}"

    def _cause(self, of: WeightSet, flat: Flat, stage: int, place: int, layer: int) -> str:
        """Which microbatch adds other gradients than in the serial step, or none."""
        job = self._job
        places = range(job.forward.num_ranks) if of.whole else (place,)
        for pipeline, microbatch in product(range(0, job.pipelines, job.parts), range(job.microbatches)):
            wanted = flat.whole(self.serial.gradients[layer, pipeline, microbatch])[place]
            chunk = next(number for number, layers in enumerate(job.layers) if layer in layers)
            at = job.stage_of(microbatch, chunk)
            ranks = (job.rank(at, part, each) for part in job.sharing(pipeline) for each in places)
            keys = [(of, rank, layer, microbatch) for rank in ranks]
            which = f"microbatch {microbatch} of pipeline {pipeline}"
            if not all(key in self._made for key in keys):
                return f"; {which} adds nothing to its gradient"
            if (np.sum([self._made[key] for key in keys], axis=0) % MODULUS != wanted).any():
                return f"; {which} adds another gradient than in the serial step"
        return ""


_MOVED = "x"
"""The tensor of collectives among ranks that hold the same weights, and of sends."""
