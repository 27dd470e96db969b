"""Memory of a rank: what tensors take, what schedules stage, and the rules on both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt

from ...compiler.codes import Code
from ...compiler.ir import EngineChoice, OpCase, OpChoice, OpPlan, Pattern, Rejection, Scenario, Shard, Tensor, Workload
from ...compiler.planning.build import ScheduleError, build_op_plan, reject_choice
from ...compiler.planning.knobs import Knob, Rule, ScheduleRequest, with_values
from ...compiler.planning.knobs.engine import ENGINE, default_engine
from ...compiler.planning.knobs.execution import KERNEL, TRANSFER
from ...compiler.planning.knobs.structure import ALGORITHM, CHUNKS, DEPTH, GATHERS, TEMPLATE
from ...compiler.planning.staging import pieces_of, slices_inner, staging_bytes
from ...compiler.templates import BY_NAME, Template
from ...compiler.text.units import bytes_text
from .domains import Choices, Codes, Domains, Knobs, candidates_of

# The result of an enumeration: plain data, without the solver.

# What tells schedules apart most: what moves, in how many pieces and by whom; then how it is carried out.
WEIGHTS = {TEMPLATE: 4, CHUNKS: 2, ENGINE: 2, TRANSFER: 2, KERNEL: 2}


def diverse(knobs: Knobs, codes: Codes, count: int, seed: int = 0) -> Codes:
    """At most ``count`` of ``codes``, in ascending order: the most usual choice of each template, then others.

    Each further one is the farthest from all before it (Gonzalez, 1985) by the weighted number of knobs in which two
    choices differ; ties go by lots, drawn from ``seed``.
    """
    if count >= len(codes):
        return codes
    columns = {knob: knobs.digits(codes, knob) for knob, values in knobs.values.items() if len(values) > 1}
    _, first = np.unique(knobs.digits(codes, TEMPLATE), return_index=True)
    lots = np.random.default_rng(seed).permutation(len(codes))
    nearest = np.full(len(codes), np.iinfo(np.int64).max)
    chosen: list[int] = []
    for place in first[:count].tolist():
        _take(place, chosen, nearest, columns)
    while len(chosen) < count:
        farthest = np.flatnonzero(nearest == nearest.max())
        _take(int(farthest[lots[farthest].argmin()]), chosen, nearest, columns)
    return np.sort(codes[chosen])


def _take(
    place: int,
    chosen: list[int],
    nearest: npt.NDArray[np.int64],
    columns: dict[Knob, npt.NDArray[np.uint16]],
) -> None:
    """Choose a place, and note how far all others are from it; ``nearest`` is the least so far."""
    chosen.append(place)
    distance = np.zeros(len(nearest), np.int64)
    for knob, digits in columns.items():
        distance += WEIGHTS.get(knob, 1) * (digits != digits[place])
    np.minimum(nearest, distance, out=nearest)


# Longer lists are of no use to a reader, nor is a long sample.
LISTED, SAMPLE = 512, 64


class NoFeasibleSchedule(ValueError):
    """No schedule satisfies every constraint; ``reasons`` is a minimal set of those that cannot hold together."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("no feasible schedule: " + "; ".join(reasons))
        self.reasons = reasons

    def __reduce__(self) -> tuple[type["NoFeasibleSchedule"], tuple[tuple[str, ...]]]:
        return NoFeasibleSchedule, (self.reasons,)  # as it crosses processes


@dataclass(frozen=True, slots=True)
class Absence:
    """A template that was asked for and has no feasible schedule, and why."""

    template: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assumed:
    """A dominance rule in force: what it assumes, and how many feasible schedules it leaves out."""

    name: str
    sentence: str
    removed: int


@dataclass(frozen=True, slots=True)
class Space:
    """The feasible choices by template, chunks, engine, streams and the other knobs, in the order of ALL_TEMPLATES.

    ``complete`` is False if the enumeration was limited or stopped. ``absent`` tells of templates that the file names
    in its ``explore`` block and that cannot run, ``assumed`` of the dominance rules that left something out. ``size``
    counts all feasible choices, None where that is not known. ``knobs`` are the values in them of each knob that has
    several, by its word in ``explore``.
    """

    choices: Sequence[OpChoice]
    complete: bool
    absent: tuple[Absence, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    size: int | None = None
    knobs: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)

    @property
    def structures(self) -> Sequence[OpChoice]:
        """One choice for each structure: the one whose execution options are closest to the defaults."""
        if not isinstance(self.choices, Choices):
            return self.choices
        knobs, codes = self.choices.knobs, self.choices.codes
        _, first = np.unique(knobs.structures(codes), return_index=True)
        return Choices(knobs, codes[first])

    def shown(self, seed: int = 0) -> Sequence[OpChoice]:
        """All choices, or of more than ``LISTED`` the ``SAMPLE`` that differ most, with every template."""
        if not isinstance(self.choices, Choices) or len(self.choices) <= LISTED:
            return self.choices
        return Choices(self.choices.knobs, diverse(self.choices.knobs, self.choices.codes, SAMPLE, seed))


def resident_bytes(scenario: OpCase) -> int:
    """Memory of a rank for its inputs and its results, without what counts as staging: partial sums, gathered rows."""
    shape, moved, n = scenario.shape, scenario.shape.moved, scenario.num_ranks
    if moved is not None and shape.compute is None:
        one_sided = shape.pattern in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)
        return moved.num_bytes + (moved.num_bytes // n if one_sided else moved.num_bytes)
    made = {*shape.made, *((moved.name,) if moved is not None and shape.pattern.sums else ())}
    return sum(share_of_rank(tensor, n) for tensor in shape.tensors if tensor.name not in made) + _result_bytes(
        scenario
    )


def _result_bytes(scenario: OpCase) -> int:
    """Bytes that a rank keeps of the last result, and of a collective beside it."""
    workload = scenario.shape.last_stage
    gemm, moved = workload.gemm, workload.moved
    if gemm is None:
        ends = [tensor for tensor in workload.tensors if tensor.name == workload.output or moved is None]
        return sum(share_of_rank(tensor, scenario.num_ranks) for tensor in ends if tensor.name in workload.made)
    if moved is not None and workload.pattern.reduces:
        return moved.num_bytes // scenario.num_ranks
    return gemm.output_bytes + (moved.num_bytes if moved and workload.pattern.independent else 0)


def share_of_rank(tensor: Tensor, num_ranks: int) -> int:
    """Return the bytes of a tensor that each rank holds."""
    return tensor.num_bytes if tensor.shard is Shard.NONE else tensor.num_bytes // num_ranks


def check_memory(scenario: OpCase, schedule: OpPlan) -> None:
    """Raise ScheduleError if the tensors of a rank and the staging of ``schedule`` do not fit its GPU."""
    needed, has = resident_bytes(scenario) + schedule.staging_bytes, scenario.gpu.hbm.capacity_bytes
    if needed > has:
        excess = f"{bytes_text(needed - has)} more than {scenario.gpu.name} has"
        message = f"{schedule.expression} needs {bytes_text(needed)} a rank, {excess}"
        hint = "smaller tensors, more ranks, or a schedule with less staging"
        raise ScheduleError(Rejection(Code.MGS402, message, hint))


def staging_needed(scenario: OpCase, choice: OpChoice) -> int:
    """Staging memory of a rank in bytes, without building the plan where that is possible.

    Algorithms differ in what they put down to be summed, which does not depend on the cut; what is gathered needs less
    where not all pieces are held.
    """
    template = BY_NAME[choice.template]
    whole = staging_bytes(scenario, slices_inner=slices_inner(scenario, template))
    if scenario.shape.pattern.sums and template.default_algorithm:
        uncut = replace(choice, chunks=least_chunks(scenario, template))
        return build_op_plan(scenario, uncut).staging_bytes if reject_choice(scenario, uncut) is None else whole
    pieces = pieces_of(choice.chunks, scenario.num_ranks, template)
    if scenario.shape.pattern not in GATHERS or not 0 < choice.depth < pieces:
        return whole
    gathered = staging_bytes(scenario, slices_inner=False)
    return whole - gathered * (pieces - choice.depth) // pieces


def least_chunks(scenario: OpCase, template: Template) -> int:
    """The fewest chunks that a template may cut the tensor into."""
    return scenario.num_ranks * (template.min_pieces if template.cuts_shards else 1)


class StagingRules:
    """The rules that what is staged is within its limit, and fits the GPU beside everything else."""

    def __init__(self, scenario: OpCase, domains: Domains) -> None:
        self._scenario, self._domains = scenario, domains
        self._needed = cache(partial(staging_needed, scenario))
        self._least = cache(self._needs)

    def rules(self) -> Iterator[Rule]:
        """A rule for each set of knobs that decides what is staged, and for each limit."""
        limit, gpu = self._scenario.explore.staging_limit_bytes, self._scenario.gpu
        for knobs in {self._deciding(BY_NAME[name]): None for name in self._domains[TEMPLATE]}:
            words = tuple(knob.word for knob in (TEMPLATE, *knobs))
            if limit is not None:
                said = partial(self._within, f"staging <= {bytes_text(limit)}: ")
                yield Rule(words, partial(self._reject_above, limit, knobs), said)
            resident, has = resident_bytes(self._scenario), gpu.hbm.capacity_bytes
            sentence = f"{gpu.name} has {bytes_text(has)} of memory: tensors take {bytes_text(resident)} a rank"
            said = partial(self._within, f"{sentence}, and for staging ")
            yield Rule(words, partial(self._reject_above, has - resident, knobs), said)

    def _deciding(self, template: Template) -> tuple[Knob, ...]:
        """The knobs that decide what a template stages."""
        pattern = self._scenario.shape.pattern
        if pattern.sums and template.default_algorithm:
            return ENGINE, ALGORITHM, TRANSFER
        if pattern in GATHERS and template.has("depth") and len(self._domains[DEPTH]) > 1:
            return CHUNKS, DEPTH
        return ()

    def _reject_above(self, limit: int, knobs: tuple[Knob, ...], request: ScheduleRequest) -> Rejection | None:
        if self._deciding(request.template) != knobs or self._needed(_by_one(request.choice)) <= limit:
            return None
        return Rejection(Code.MGS402, f"staging is above {bytes_text(limit)}")

    def _within(self, start: str, scenario: OpCase) -> str:
        return f"{start}{self._least()}"

    def _needs(self) -> str:
        """How much is staged, in words."""
        needed = list(self._staged())
        least, most = bytes_text(min(needed)), bytes_text(max(needed))
        names = self._domains[TEMPLATE]
        if len(names) > 1:
            return f"every schedule needs at least {least}"
        return f"{names[0]} needs {least}{f' to {most}' if most != least else ''}"

    def _staged(self) -> Iterator[int]:
        """Bytes of staging of every candidate."""
        scenario, domains = self._scenario, self._domains
        for template in (BY_NAME[name] for name in domains[TEMPLATE]):
            usual = OpChoice(template.name, scenario.num_ranks, default_engine(scenario.system))
            knobs = self._deciding(template)
            values = (candidates_of(scenario, domains, template, knob) for knob in knobs)
            for each in product(*values):
                yield self._needed(_by_one(with_values(usual, dict(zip(knobs, each, strict=True)))))


def _by_one(choice: OpChoice) -> OpChoice:
    """The same by one engine of the kind: what is staged does not depend on how many copy."""
    return replace(choice, engine=EngineChoice(choice.engine.kind, 1))


def held_bytes(workload: Workload, num_ranks: int) -> int:
    """Memory of a rank for the tensors that the file declares: each layer has its own, but for what it is handed."""
    made = {tensor for tensor, _, _ in workload.results}
    layers, handed = (workload.repeat.count, workload.repeat.as_input) if workload.repeat is not None else (1, "")
    declared = (tensor for tensor in workload.tensors if tensor.name not in made)
    return sum(share_of_rank(tensor, num_ranks) * (1 if tensor.name == handed else layers) for tensor in declared)


def check_workload_memory(scenario: Scenario, staging_bytes: int = 0) -> None:
    """Refuse a workload whose tensors, with ``staging_bytes``, do not fit into the memory of a GPU.

    Raises
    ------
    ScheduleError
        If they do not.
    """
    workload, gpu = scenario.workload, scenario.system.gpu
    held = held_bytes(workload, scenario.num_ranks)
    if held + staging_bytes > gpu.hbm.capacity_bytes:
        layers = f" of {workload.repeat.count} layers" if workload.repeat is not None else ""
        message = f"workload {scenario.name}: the tensors{layers} take {bytes_text(held)} of a rank"
        if staging_bytes:
            message += f", and the schedule stages {bytes_text(staging_bytes)}"
        has = f"{gpu.name} has {bytes_text(gpu.hbm.capacity_bytes)}"
        routings = (case.shape.routing for case in scenario.moving)
        fewer = "fewer replicas of experts, " if any(each and each.replicas for each in routings) else ""
        hint = f"{fewer}repeat fewer layers, or use more GPUs"
        raise ScheduleError(Rejection(Code.MGS402, f"{message}, but {has}", hint))
