"""A step carried out with real data in this process, and compared with the serial step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from threading import Lock

import numpy as np

from ...compiler.codes import Code
from ...compiler.ir import Rejection
from ...compiler.ir.step import ChunkPass, PassKind
from ..board import Board, HoldPolicy, Moment, work_through
from ..execute import ended
from ..memory import Array, Fault
from ..operands import MODULUS
from ..report import KINDS, MAX_NAMED, MAX_STEPS, Outcome, RunRefused, RunReport, SeedRun, step_kinds
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
from .context import arriving, carried_out
from .serial import Flat, SerialStep, StepMemory, by_place, check_ops, updated
from .work import GroupWork, StepWork, Values, WeightSet, gradient_of


def carry_out_step(job: StepWork, seeds: Iterable[int] = range(3)) -> RunReport:
    """Carry a step out, once for each of ``seeds`` until a run fails, and compare weights with those of a serial step.

    All numbers are whole up to the gradients, and the update is the same for each element, so that equal means equal.

    Raises
    ------
    RunRefused
        If it cannot be carried out here.
    """
    for work in (work for kind in job.kinds for work in (kind.forward, *kind.backward)):
        check_ops(work.workload if work.cut is None else work.cut.work.workload)
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
        self._flats = [[(each, Flat(job, kind, each)) for each in kind.sets] for kind in job.kinds]
        self.serial = SerialStep(job, seed)
        self.counts: Counter[type] = Counter()
        self.tasks: tuple[StageTask, ...] = tasks_of_step(job, self)
        self._memory = StepMemory(self.tasks)
        self._policy, self._lock = HoldPolicy(seed), Lock()
        self._made: dict[tuple[WeightSet, int, int, int], Array] = {}  # gradients, by rank, layer and microbatch
        for pipeline, stage in product(range(job.pipelines), range(job.num_stages)):
            self._make_room(stage, pipeline)
        for pipeline, microbatch in product(range(job.pipelines), range(job.microbatches)):
            self._place_input(pipeline, microbatch)

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
        outcome, sentences = ended(self._board, self.tasks, self._job.num_ranks)
        if outcome is Outcome.EXACT:
            sentences = list(islice(self._differences(), MAX_NAMED + 1))
        return Outcome.WRONG if outcome is Outcome.EXACT and sentences else outcome, sentences

    # What there is at first.

    def _ranks(self, stage: int, pipeline: int) -> tuple[int, ...]:
        return tuple(self._job.rank(stage, pipeline, place) for place in range(self._job.num_places))

    def _sets(self, layer: int) -> list[tuple[WeightSet, Flat]]:
        """The weights of a layer, and how they lie."""
        return self._flats[self._job.parts[layer][0]]

    def _place_input(self, pipeline: int, microbatch: int) -> None:
        kind, ranks = self._job.of(0), self._ranks(self._job.stage_of(microbatch, 0), pipeline)
        name = named(kind.taken, self._job.called(0), microbatch)
        for place, part in by_place(kind, self.serial.input(pipeline, microbatch)).items():
            self._memory.make(ranks[place], name, part.shape, part)

    def _make_room(self, stage: int, pipeline: int) -> None:
        """Room for all that passes of a stage take and make, and its weights."""
        passes = list(room_of(self._job, stage))
        for place, rank in enumerate(self._ranks(stage, pipeline)):
            for each in passes:
                for work, name in self._made_by(each):
                    self._memory.make(rank, each.names(name), work.shape_of(name))
            for layer in dict.fromkeys(each.layer for each in passes):
                self._make_weights(stage, place, rank, [each for each in passes if each.layer == layer])

    def _made_by(self, each: LayerTask) -> Iterator[tuple[GroupWork, str]]:
        kind = self._job.of(each.layer)
        if each.work is PassKind.FORWARD:
            for name in (kind.taken, kind.handed_on, *kind.kept):
                yield kind.forward, name
        elif each.work is not PassKind.WEIGHTS:
            for name in (*kind.gradient, *kind.between):
                yield kind.backward[0], name

    def _make_weights(self, stage: int, place: int, rank: int, passes: Sequence[LayerTask]) -> None:
        """Room for the weights of a layer at a rank, of which these are the passes."""
        job, layer, called = self._job, passes[0].layer, passes[0].called
        gathers = job.is_shared and (job.zero == 3 or job.gathers_beside)
        for each, flat in self._sets(layer):
            make, shape = partial(self._make, each, rank), flat.shape
            row = job.own_row(job.of(layer), each, stage, rank)
            piece = (1, shape[1]) if job.shares(each) else shape
            first = flat.whole({name: self.serial.first(layer, name) for name in each.names})[place]
            make(pieces_of(called), piece if gathers else shape, first[row] if gathers else first)
            make(f"all {pieces_of(called)}", shape)
            for task in passes:
                make(f"{pieces_of(called)} for {task.name}", shape)
                make(gradients_of(called, task.microbatch), shape, np.zeros(shape))
            make(gradients_of(called), shape, np.zeros(shape))
            make(f"sum of {gradients_of(called)}", piece, np.zeros(piece) if job.zero == 3 else None)
            make(after_step(called), piece)
            make(after_step(called, gathered=True), shape)

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
            self.counts += step_kinds(work.plan, work.num_ranks)
        return found

    def _pass(self, of: LayerTask, work: GroupWork, given: Values, wanted: Iterable[str], task: StageTask) -> Values:
        """Carry a pass of a layer out, or a part of it, in pieces where it is cut."""
        carry, kind, cut = partial(self._carried, task=task), self._job.of(of.layer), work.cut
        if cut is None:
            return carried_out(kind, work, given, wanted, self._seed, carry)
        whole = [[cut.apart(name, values) for values in given[name]] for name in given.keys() & cut.tensors]
        pieces = {piece: tuple(each[piece] for each in parts) for parts in whole for piece in parts[0]}
        found = carried_out(kind, cut.work, pieces, cut.pieces(wanted), self._seed, carry)
        places = range(kind.num_places)
        by_place = [{piece: parts[place] for piece, parts in found.items()} for place in places]
        return {name: tuple(cut.together(name, each) for each in by_place) for name in wanted}

    def _read(self, ranks: Iterable[int], name: str, task: StageTask) -> tuple[Array, ...]:
        return tuple(self._memory.read(rank, name, task) for rank in ranks)

    def _write(self, ranks: Iterable[int], name: str, values: Iterable[Array], task: StageTask) -> None:
        for rank, part in zip(ranks, values, strict=True):
            self._memory.write(rank, name, part, task)

    def run_pass(self, each: LayerTask, taken: str, weights: str, task: StageTask) -> None:
        """A pass of a layer, which takes the tensor ``taken`` and weights of that name."""
        kind, ranks = self._job.of(each.layer), self._ranks(task.stage, task.pipeline)
        values, given = self._read(ranks, taken, task), self._weights(each.layer, weights, ranks, task)
        if each.work is PassKind.FORWARD:
            wanted = (kind.handed_on, *(() if self._job.again else kind.kept))
            found = self._pass(each, kind.forward, given | {kind.taken: values}, wanted, task)
            if taken != each.names(kind.taken):
                found |= {kind.taken: values}
        else:
            found = self._backward(each, ranks, given | {kind.gradient[0]: values}, task)
        self._pause(task, Moment.END)
        makes = each.work in MAKES_GRADIENTS
        gradients = {name: found.pop(gradient_of(name)) for name in kind.weights if makes}
        for name, whole in found.items():
            self._write(ranks, each.names(name), (part % MODULUS for part in whole), task)
        if makes:
            self._add(each, gradients, ranks, task)

    def _weights(self, layer: int, name: str, ranks: Sequence[int], task: StageTask) -> Values:
        """The weights of a layer at the ranks of a pipeline."""
        found: Values = {}
        for of, flat in self._sets(layer):
            parts = [flat.parts(values) for values in self._read(ranks, of.named(name), task)]
            found |= {weight: tuple(part[weight] for part in parts) for weight in of.names}
        return found

    def _backward(self, each: LayerTask, ranks: Sequence[int], given: Values, task: StageTask) -> Values:
        """What a backward pass makes of gradients, what was kept, and weights."""
        kind, is_again = self._job.of(each.layer), self._job.again and each.work is not PassKind.WEIGHTS
        names, wanted = [kind.taken, *(() if is_again else kind.kept)], list[str]()
        if each.work is PassKind.WEIGHTS:
            names += kind.between
        else:
            wanted += [kind.gradient[1], *kind.between]
        if each.work in MAKES_GRADIENTS:
            wanted += [gradient_of(name) for name in kind.weights]
        known = given | {name: self._read(ranks, each.names(name), task) for name in names}
        again: Values = {}
        if is_again:
            found = self._pass(each, kind.forward, known, kind.kept, task)
            again = {name: tuple(part % MODULUS for part in parts) for name, parts in found.items()}
        work = kind.backward[-1 if each.work is PassKind.WEIGHTS else 0]
        there = {name: known.pop(name) for name in wanted if name in known}  # made with gradients of inputs
        missing = [name for name in wanted if name not in there]
        return self._pass(each, work, known | again, missing, task) | there | again

    def _add(self, each: LayerTask, gradients: Values, ranks: Sequence[int], task: StageTask) -> None:
        """Add the gradients of a microbatch to those of others, or leave them to be scattered."""
        alone = self._job.zero == 3 and self._job.has_sums
        own = {name.removeprefix("d_"): parts for name, parts in gradients.items()}
        for of, flat in self._sets(each.layer):
            name = of.named(gradients_of(each.called, each.microbatch if alone else None))
            sums = self._read(ranks, name, task)
            made = [flat.of({key: parts[place] for key, parts in own.items()}) % MODULUS for place in range(len(ranks))]
            self._write(ranks, name, ((old + new) % MODULUS for old, new in zip(sums, made, strict=True)), task)
            self._made |= {
                (of, rank, each.layer, each.microbatch): part for rank, part in zip(ranks, made, strict=True)
            }

    def run_send(self, sent: ChunkPass, taken: ChunkPass | None, to: int, task: StageTask) -> None:
        """A send, to what is ``taken`` there."""
        job, forward = self._job, sent.work is PassKind.FORWARD
        layer = job.layers[sent.chunk][-1 if forward else 0]
        kind = job.of(layer)
        made = named(kind.handed_on if forward else kind.gradient[1], job.called(layer), sent.microbatch)
        assert job.send is not None, "there are several stages"
        leaves = self._read(self._ranks(task.stage, task.pipeline), made, task)
        arrived = arriving(kind, leaves, job.send, job.rejoin, partial(self._carried, task=task))
        self._pause(task, Moment.END)
        if taken is not None:
            layer = job.layers[taken.chunk][0 if forward else -1]
            kind = job.of(layer)
            name = named(kind.taken if forward else kind.gradient[0], job.called(layer), taken.microbatch)
            self._write(self._ranks(to, task.pipeline), name, arrived, task)

    def _among_holders(
        self, layer: int, work: GroupWork | None, of: WeightSet, name: str, task: StageTask
    ) -> Iterator[tuple[int, Array]]:
        """Yield what a collective of some weights leaves at each rank of a stage; without one what there is."""
        for ranks in self._job.holders(self._job.of(layer), of, task.stage):
            found = self._read(ranks, of.named(name), task)
            made = found if work is None else self._carried(work, {_MOVED: found}, [""], task)[""]
            yield from zip(ranks, made, strict=True)

    def run_gather(self, layer: int, pieces: str, into: str, task: StageTask) -> None:
        """The weights of a layer, gathered among the ranks that hold the same."""
        found = [(of, list(self._among_holders(layer, of.gathers, of, pieces, task))) for of, _ in self._sets(layer)]
        self._pause(task, Moment.END)
        for of, values in found:
            for rank, each in values:
                self._memory.write(rank, of.named(into), each, task)

    def run_sum(self, layer: int, gradients: str, task: StageTask) -> None:
        """The gradients of a layer, summed among the ranks that hold the same weights."""
        found = [(of, list(self._among_holders(layer, of.sums, of, gradients, task))) for of, _ in self._sets(layer)]
        self._pause(task, Moment.END)
        for of, values in found:
            name = of.named(f"sum of {gradients_of(self._job.called(layer))}")
            for rank, each in values:
                before = self._memory.read(rank, name, task) if self._job.zero == 3 else 0
                self._memory.write(rank, name, (each + before) % MODULUS, task)

    def run_join(self, layer: int, task: StageTask) -> None:
        """What two stages with the same layers have of the gradients of one, summed."""
        job, found = self._job, list[tuple[int, str, Array]]()
        for (of, _), *ids in product(self._sets(layer), range(job.pipelines), range(job.num_places)):
            ranks = [job.rank(stage, *ids) for stage in job.mates(task.stage)]
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
        name = gradients_of(self._job.called(layer))
        return f"sum of {name}" if self._job.has_sums else name

    def run_update(self, layers: tuple[int, ...], task: StageTask) -> None:
        """The update of the weights of a stage."""
        job = self._job
        for layer, (of, flat) in ((number, each) for number in layers for each in self._sets(number)):
            called, pairs = job.called(layer), [self.serial.moments(layer, name) for name in of.names]
            moments = [
                flat.whole({name: pair[number] for name, pair in zip(of.names, pairs, strict=True)})
                for number in (0, 1)
            ]
            name = of.named(self._summed(layer))
            for place, rank in enumerate(self._ranks(task.stage, task.pipeline)):
                row = job.own_row(job.of(layer), of, task.stage, rank)
                gradients = self._memory.read(rank, name, task)
                own = self._memory.read(rank, of.named(pieces_of(called)), task)
                first, second = (each[place][row] for each in moments)
                own = own if len(own) == len(first) else own[row]
                self._memory.write(rank, of.named(after_step(called)), updated(own, gradients, (first, second)), task)

    # What there must be.

    def _differences(self) -> Iterator[str]:
        """Yield which weights are not those of the serial step, and the first microbatch that has to do with it."""
        job = self._job
        for stage, pipeline in product(range(job.num_stages), range(job.pipelines)):
            for layer in dict.fromkeys(each.layer for each in room_of(job, stage)):
                for place, rank in enumerate(self._ranks(stage, pipeline)):
                    for of, flat in self._sets(layer):
                        found = self._difference(layer, of, flat, stage, rank, place)
                        if found:
                            cause = self._cause(of, flat, place, layer)
                            yield f"rank {rank} (stage {stage}) has {found} of {job.called(layer)}{cause}"

    def _difference(self, layer: int, of: WeightSet, flat: Flat, stage: int, rank: int, place: int) -> str:
        """The first weight of a layer at a rank that is another one than in the serial step."""
        job, called = self._job, self._job.called(layer)
        gathered = job.is_shared and job.zero < 3 and not job.gathers_beside
        row = slice(None) if gathered else job.own_row(job.of(layer), of, stage, rank)
        wanted = flat.whole(self.serial.weights[layer])[place][row]
        found = self._memory.look(rank, of.named(after_step(called, gathered=gathered)))
        differs = np.argwhere(found != wanted)
        if not len(differs):
            return ""
        line, col = (int(index) for index in differs[0])
        name, at, col_of = flat.place(line + (row.start or 0), col)
        return f"{found[line, col]:.6g} in place of {wanted[line, col]:.6g} in row {at}, column {col_of} of {name}"

    def _cause(self, of: WeightSet, flat: Flat, place: int, layer: int) -> str:
        """Which microbatch adds other gradients than in the serial step, or none."""
        job = self._job
        alike = next(places for places in job.of(layer).alike(of) if place in places)
        for pipeline, microbatch in product(range(job.pipelines), range(job.microbatches)):
            wanted = flat.whole(self.serial.gradients[layer, pipeline, microbatch])[place]
            chunk = next(number for number, layers in enumerate(job.layers) if layer in layers)
            at = job.stage_of(microbatch, chunk)
            keys = [(of, job.rank(at, pipeline, each), layer, microbatch) for each in alike]
            which = f"microbatch {microbatch} of pipeline {pipeline}"
            if not all(key in self._made for key in keys):
                return f"; {which} adds nothing to its gradient"
            if (np.sum([self._made[key] for key in keys], axis=0) % MODULUS != wanted).any():
                return f"; {which} adds another gradient than in the serial step"
        return ""


_MOVED = "x"
"""The tensor of collectives among ranks that hold the same weights, and of sends."""
