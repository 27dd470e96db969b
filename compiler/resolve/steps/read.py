"""Steps of a file: the workloads that they name, backward passes that are derived, and whether all of it fits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from ...codes import Code
from ...ir import Axis, Implementation, Partition, Rejection, Scenario, Shard, System, Tensor, Workload
from ...ir.step import KEEP_ALL, KEEP_LEAST, KEEP_WRITTEN, LayerPart, StepExplore, StepScenario, weights_of
from ...text import syntax as ast
from ...text.diagnostics import Span, did_you_mean, listing
from ...text.names import STACKS_FOLDER, Entry, Kind, Scope
from ...text.vocabulary import BACKWARD_WORDS
from ..devices.system import SystemResolver
from ..schedules.implementation import ImplementationReader, shipped_implementations
from ..values.evaluate import Reading
from ..values.words import head_word
from .schedule import StepBlockReader
from .step import NamedPart, StepText, StepTextReader, assembled, derived_backward, is_step, results_of, summed_once

PIPELINE_AXIS = "pp"
"""The axis of a mesh along which stages of a pipeline lie."""


class StepsReader:
    """Reads the steps of one file.

    Parameters
    ----------
    scenarios
        The workloads of the file by name; those with errors are missing.
    partitions
        The workloads that are on several groups, by name.
    systems
        Resolves systems.
    derive
        Resolves a workload that no text has.
    """

    def __init__(
        self,
        scope: Scope,
        scenarios: Mapping[str, Scenario],
        partitions: Mapping[str, Partition],
        systems: SystemResolver,
        derive: Callable[[Entry], Scenario],
        reading: Reading,
    ) -> None:
        self._scope, self._reading, self._report = scope, reading, reading.report
        self._scenarios, self._partitions = dict(scenarios), partitions
        self._systems, self._derive = systems, derive

    def read(self, entry: Entry) -> StepScenario:
        """Return the step of an entry."""
        text = self._by_group(StepTextReader(entry, self._reading).read())
        system = self._whole(entry)
        with_stacks = (lambda name: self._stack(name, system)), self._reading.inside(entry.scope)
        reader = StepBlockReader(self._schedules(text), self._results(text), *with_stacks)
        every = (each.schedule for each in self._scope.of_kind(Kind.SCHEDULE))
        declared = [each for each in every if each.workload.names == (entry.name,)]
        schedules = tuple(map(reader.schedule, declared))
        explored = (each for each in self._scope.questions if isinstance(each, ast.ExploreNode))
        spaces = [reader.explore(each) for each in explored if each.workload.names == (entry.name,)]
        explore = spaces[0] if spaces else StepExplore()
        said = zip(schedules, declared, strict=True)
        keeps = {how.keep: _place_of_keep(each) for how, each in said if how.keep not in (KEEP_ALL, KEEP_LEAST)}
        self._check_backward(text)
        parts = {part.forward.text: self._part(system, part, keeps) for part in text.parts}
        stages = self._stages(system)
        step = assembled(text, system, 1 if stages is None else stages.num_ranks, parts, self._report)
        return StepScenario(entry.name, system, step, stages, schedules, explore)

    def _by_group(self, text: StepText) -> StepText:
        """The text with the parts of workloads on several groups in their places, which repeat as these do."""
        blocks = []
        for parts, span in text.blocks:
            named: list[NamedPart] = []
            for part in parts:
                partition = self._partitions.get(part.forward.text)
                named += [part] if partition is None else self._parts(part, partition)
            self._repeat_parts(named)
            blocks.append((tuple(named), span))
        return replace(text, blocks=tuple(blocks))

    def _parts(self, part: NamedPart, partition: Partition) -> Iterator[NamedPart]:
        if part.backward is not None:
            message = f"{partition.name} is on several groups, and so is its backward pass"
            raise self._report.fail(Code.MGS574, message, part.backward.span, f"step {' then '.join(partition.parts)}")
        if not partition.repeats:
            message = f"layers of {partition.name} hand on more than one tensor from group to group, or do not repeat"
            raise self._report.fail(Code.MGS570, message, part.forward.span, "repeat 80 y as x, and one tensor between")
        for name in partition.parts:
            yield NamedPart(replace(part.forward, text=name), None)

    def _repeat_parts(self, named: Sequence[NamedPart]) -> None:
        """Take parts of workloads on several groups, which are of one layer by themselves, with all their layers."""
        of_groups = {name for each in self._partitions.values() if each.repeats for name in each.parts}
        for name in {part.forward.text: part.forward for part in named if part.forward.text in of_groups}.values():
            entry, alone = self._workload(name)
            if alone.workload.repeat is None:
                self._scenarios[name.text] = replace(self._derive(entry), schedules=alone.schedules)

    def _stack(self, name: ast.Name, system: System) -> Implementation:
        """The implementation of that name that is a stack: of the file, or a shipped one."""
        own = self._scope.lookup((name.text,))
        if own is not None and own.kind is Kind.IMPLEMENTATION:
            found = {name.text: ImplementationReader(system, self._reading).read(own)}
        else:
            found = {each.name: each for each in shipped_implementations(system, STACKS_FOLDER)}
        stack = found.get(name.text)
        if stack is None or stack.stack is None:
            message = f"unknown stack '{name.text[:40]}'" if stack is None else f"{name.text} does not say its stack"
            hint = did_you_mean(name.text, found) or f"stacks are {listing(tuple(found))}"
            raise self._report.fail(Code.MGS204, message, name.span, hint)
        if stack.gpus and system.gpu.name not in stack.gpus:
            message = f"{name.text} is known on {', '.join(stack.gpus)}, not on {system.gpu.name}"
            hint = "leave it out, or say the numbers of one of your own: implementation ours { stack { ... } }"
            raise self._report.fail(Code.MGS530, message, name.span, hint)
        return stack

    def _workload(self, name: ast.Name) -> tuple[Entry, Scenario]:
        entry = self._scope.find(name, Kind.WORKLOAD, self._report)
        if is_step(entry.declaration):
            message = f"'{entry.name}' is a training step, a workload of layers is expected here"
            raise self._report.fail(Code.MGS210, message, name.span)
        if entry.name not in self._scenarios:
            raise self._report.stop()  # what is wrong with it is reported at its own statements
        return entry, self._scenarios[entry.name]

    def _schedules(self, text: StepText) -> dict[str, Sequence[str]]:
        """The names of the schedules of each workload of a step."""
        names = [each for part in text.parts for each in (part.forward, part.backward) if each is not None]
        return {name.text: [each.name for each in self._workload(name)[1].schedules] for name in names}

    def _results(self, text: StepText) -> tuple[str, ...]:
        """What may be kept of the passes forward whose backward passes are derived."""
        derived = [part.forward for part in text.parts if part.backward is None]
        return tuple(name for each in derived for name in results_of(self._workload(each)[0].workload))

    def _check_backward(self, text: StepText) -> None:
        """Check that what is named as a backward pass is none of the layers, and not the pass of another."""
        forwards = dict[str, str | None]()
        for part in text.parts:
            name = None if part.backward is None else part.backward.text
            if forwards.setdefault(part.forward.text, name) != name:
                message = f"layers of {part.forward.text} have one backward pass, and two are named"
                span = (part.backward or part.forward).span
                raise self._report.fail(Code.MGS570, message, span, "another workload for layers with another pass")
        for part in text.parts:
            if part.backward is None:
                continue
            forward, name = part.forward.text, part.backward.text
            statements = self._workload(part.backward)[0].workload.block.statements
            said = (each for each in statements if isinstance(each, ast.Say) and head_word(each) == BACKWARD_WORDS[0])
            of = next((each.phrase[0].parts[1].span.text for each in said), forward)
            if name in forwards:
                what = "itself" if name == forward else f"{forward}, but a layer of this step"
                message = f"{name} is no backward pass of {what}"
            elif of != forward:
                message = f"{name} is the backward pass of {of}, not of {forward}"
            else:
                continue
            raise self._report.fail(Code.MGS570, message, part.backward.span, f"step {forward}: it is derived")

    def _check_written(self, forward: Scenario, back: Scenario, name: ast.Name) -> None:
        """Check that a pass that is written out takes what the forward pass has, and makes gradients of all weights."""
        own, repeats = forward.workload, (forward.workload.repeat, back.workload.repeat)
        there, made = {each.name: each for each in own.tensors}, {tensor for tensor, _, _ in back.workload.results}
        if repeats[0] is not None and repeats[1] is not None:
            there[repeats[1].as_input] = own.tensor(repeats[0].result)
        for taken in dict.fromkeys(read.tensor for read in back.workload.declared_reads):
            found, wanted = back.workload.tensor(taken), there.get(taken)
            if wanted is None:
                message = f"{back.name} takes {taken}, which {forward.name} has not"
                raise self._report.fail(Code.MGS570, message, name.span, f"step {forward.name}: it is derived")
            if _lies(found) != _lies(wanted):
                message = (
                    f"{back.name} takes {taken}, {_lies(found)}, and {wanted.name} of {forward.name} is {_lies(wanted)}"
                )
                raise self._report.fail(Code.MGS570, message, name.span, f"a pass of its own for {forward.name}")
        for each in weights_of(forward):
            if f"d_{each.name}" not in made:
                message = f"{back.name} makes no gradient of {each.name}, a weight of {forward.name}, by its name"
                raise self._report.fail(Code.MGS570, message, name.span, f"name it d_{each.name}, as derived passes do")

    def _part(self, system: System, part: NamedPart, keeps: Mapping[str, Span]) -> LayerPart:
        entry, forward = self._workload(part.forward)
        copies, stage = self._copies(system, entry), self._group(system, self._beside(system, ()), entry)
        context = self._context(system, entry, forward.workload)
        if part.backward is not None:
            written = self._workload(part.backward)[1]
            self._check_written(forward, written, part.backward)
            return LayerPart(forward, ((KEEP_WRITTEN, summed_once(written, forward)),), copies, stage, context)
        backward = []
        for keep, span in ({KEEP_ALL: part.forward.span} | dict(keeps)).items():
            declaration = derived_backward(part, entry.workload, _kept(keep, entry.workload), span)
            derived = self._derive(Entry(declaration.name, Kind.WORKLOAD, declaration, entry.scope))
            backward.append((keep, summed_once(derived, forward)))
        return LayerPart(forward, tuple(backward), copies, stage, context)

    def _context(self, system: System, entry: Entry, forward: Workload) -> System | None:
        """The ranks that attention of a layer exchanges keys and values with."""
        names = tuple(dict.fromkeys(each.over for each in forward.in_context))
        if not names:
            return None
        own, axes = system.axes(self._systems.whole_of(entry)[1]), system.axes(names)
        span, why = entry.workload.system.span, ""
        assert not isinstance(axes, Rejection) and not isinstance(own, Rejection), "they were found in its calls"
        if PIPELINE_AXIS in names:
            why = "along which each rank has other layers"
        elif own and axes[0] in own and any(each.shard is Shard.COLS for each in forward.tensors):
            why = "along which ranks have other columns"
        elif len(names) > 1:
            why = "and a sequence lies along one axis"
        if why:
            message = f"attention of {entry.name} is over {' and '.join(names)}, {why}"
            raise self._report.fail(Code.MGS570, message, span, "an axis of its own: mesh tp 8, cp 2, dp 8")
        return self._group(system, axes, entry)

    def _whole(self, entry: Entry) -> System:
        """The system of a step, which is no group."""
        whole, axes = self._systems.whole_of(entry)
        if axes:
            span = entry.workload.system.span
            message = f"a step runs on all ranks of {whole.name}, not on a group"
            raise self._report.fail(Code.MGS570, message, span, f"workload {entry.name} on {whole.name}")
        system = self._systems.system(whole)
        stages = [axis for axis in system.mesh if axis.name == PIPELINE_AXIS]
        others = [axis for axis in system.mesh if axis not in stages]
        crossing = [axis.name for axis in others for each in stages if _meet(axis, each)]
        if crossing:
            message = f"ranks along {crossing[0]} lie on several stages of {PIPELINE_AXIS}, which have other layers"
            hint = f"lay {crossing[0]} over axes of one stage, such as dp"
            raise self._report.fail(Code.MGS570, message, entry.workload.system.span, hint)
        return system

    def _copies(self, system: System, entry: Entry) -> System | None:
        """The ranks that hold the same weights as one rank of a workload: those beside its group on its stage."""
        whole, names = self._systems.whole_of(entry)
        span = entry.workload.system.span
        if self._systems.system(whole) != system:
            raise self._report.fail(Code.MGS570, f"{entry.name} is on {whole.name}, the step on {system.name}", span)
        if PIPELINE_AXIS in names or (not names and self._stages(system) is not None):
            message = f"{entry.name} is on {PIPELINE_AXIS} too, along which each rank has other layers"
            raise self._report.fail(Code.MGS570, message, span, "name the axes that share a layer, such as pod.tp")
        axes = system.axes(names)
        assert not isinstance(axes, Rejection), "the workload was resolved on it"
        if not names:
            return None
        return self._group(system, self._beside(system, axes), entry)

    def _group(self, system: System, axes: tuple[Axis, ...], entry: Entry) -> System | None:
        """The ranks along some axes; None where they are one rank, or where there is no mesh."""
        if prod(axis.size for axis in axes) == 1:
            return None
        group = system.group(tuple(axis.name for axis in axes if axis.size > 1))
        if isinstance(group, Rejection):
            raise self._report.refuse(group, entry.workload.system.span)
        return group

    @staticmethod
    def _beside(system: System, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Axes of the mesh whose ranks hold the same weights: the others of a stage, each rank in one of them."""
        first, last = (axes[0].stride, axes[-1].stride * axes[-1].size) if axes else (1, 1)
        found: list[Axis] = []
        for axis in system.mesh:
            is_own = axis.stride >= first and axis.stride * axis.size <= last
            meets = any(_meet(axis, other) for other in (*axes, *found))
            if axis.name != PIPELINE_AXIS and not is_own and not meets:
                found.append(axis)
        return tuple(found)

    def _stages(self, system: System) -> System | None:
        """The ranks of a pipeline."""
        if all(axis.name != PIPELINE_AXIS or axis.size == 1 for axis in system.mesh):
            return None
        group = system.group((PIPELINE_AXIS,))
        if isinstance(group, Rejection):
            raise self._report.stop()
        return group


def _meet(one: Axis, other: Axis) -> bool:
    """Whether two axes count some of the same ranks; an axis of one rank counts none."""
    if 1 in (one.size, other.size):
        return False
    return one.stride < other.stride * other.size and other.stride < one.stride * one.size


def _lies(tensor: Tensor) -> str:
    """The size of a tensor and how ranks have it, for people."""
    return f"[{tensor.rows}, {tensor.cols}] {tensor.layout}"


def _place_of_keep(declaration: ast.TemplateNode | ast.PlanNode) -> Span:
    """The place where a schedule says what is kept."""
    assert isinstance(declaration, ast.PlanNode), "the schedule of a step is a block"
    return next(each.span for each in declaration.block.statements if head_word(each) == "keep")


def _kept(keep: str, forward: ast.WorkloadNode) -> tuple[str, ...]:
    """The results that are kept, as names; those of this workload, where several have some each."""
    results = results_of(forward)
    if keep == KEEP_ALL:
        return results
    return tuple(each for each in keep.split(", ") if each in results)
