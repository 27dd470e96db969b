"""Read plans from JSON, ``magus-plan/2``; the input is not trusted.

``forms.py`` has the form. This module checks that the file is for the workload, and the hash; ``verify/check.py``
checks, as for any plan, that every byte moves, that waits end and that what is read is waited for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..codes import Code
from ..ir import (
    COLLECTIVES_STREAM,
    Op,
    OpCase,
    OpChoice,
    OpPlan,
    OpShape,
    Part,
    Plan,
    System,
    Workload,
    WrittenPlan,
)
from ..planning.build import ScheduleError, build_op_plan
from ..planning.groups import cut_up
from ..planning.parts import PlanError, batch_counts, collective_alone, collective_name, kernel_alone
from ..planning.plan import layers_of
from ..templates import BASELINE
from ..text.diagnostics import did_you_mean, listing
from ..text.json_forms import Item
from ..verify.check import check_parts
from .forms import (
    ENGINE,
    FILE,
    OLD_SCHEMAS,
    PART,
    SCENARIO,
    PartInFile,
    ScenarioInFile,
    StepLimits,
    plan_form,
)
from .write import SCHEMA, SHOWN_LAYERS, base_name, fingerprint, plan_document, renamed

MAX_SHOWN_FAULTS = 20
_FIT = "a plan fits the workload and the number of GPUs it was made for"


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A part of a file: what it says, where, and the op, or half of one, whose plan it has."""

    said: PartInFile
    item: Item
    op: Op
    shape: OpShape
    plan: WrittenPlan
    expression: str | None
    """Of its plan, None where that is the expression of the whole."""


def check(system: System, workload: Workload, plan: Plan, document: Item, places: Mapping[str, Item]) -> None:
    """Report what is wrong with a plan: with the steps of a part at its place, else with the ``document``.

    Raises
    ------
    Stopped
        If anything is.
    """
    faults = check_parts(system, workload, plan)
    for fault in faults[:MAX_SHOWN_FAULTS]:
        places.get(fault.part, document).fail(fault.message, fault.hint, fault.code)
    if faults:
        raise document.origin.report.stop()


def read_plan(system: System, workload: Workload, document: Item, name: str) -> Plan:
    """The plan called ``name`` for ``workload`` on ``system``, cut and in as many layers as the document says.

    Raises
    ------
    Stopped
        If the document has another form, is for another workload or was changed, or if the plan cannot run; its report
        has diagnostics.
    """
    _check_schema(document)
    file = FILE.read(document)
    scenario = SCENARIO.read(file["scenario"])
    names = _names(workload, file["scenario"], scenario)
    members = {key: item.value for key, item in document.members().items()}
    named = FILE.read(replace(document, value=renamed(members, names)))
    fitting = _graph_that_fits(system, workload, scenario, named["scenario"])
    parts = _read_parts(system, fitting, file["plans"], named["parts"])
    unused = set(range(len(file["plans"]))) - {part.said.plan for part in parts}
    if unused:
        raise file["plans"][min(unused)].fail("no part has this plan")
    plan = Plan(name, _built(system, parts, file["plans"], name), file.get("sums_priority", 0), scenario.cut)
    said = file.get("hash")
    if said is not None and said != plan_document(system, workload, plan)["hash"]:
        hint = "leave the key 'hash' out, or write the plan anew: magus plan --format json"
        raise document.members()["hash"].fail("this is not the hash of this plan, which was changed", hint, Code.MGS525)
    check(system, fitting, plan, document, {read.said.name: file["plans"][read.said.plan] for read in parts})
    _check_staging(plan, parts)
    return plan


def _built(system: System, parts: Sequence[ReadPart], plans: Sequence[Item], name: str) -> tuple[Part, ...]:
    schedules: dict[tuple[int, OpShape], OpPlan] = {}
    for read in parts:
        key = read.said.plan, read.shape  # layers that are alike share what is built
        if key not in schedules:
            schedules[key] = _schedule(system, read, plans[read.said.plan], name)
    return tuple(_part(read, schedules[read.said.plan, read.shape]) for read in parts)


def _schedule(system: System, read: ReadPart, item: Item, name: str) -> OpPlan:
    scenario = OpCase(read.said.name, system, read.shape)
    try:
        schedule = build_op_plan(scenario, read.plan, name if read.expression is None else read.expression)
        if read.shape is read.op.shape or not read.shape.is_collective:
            return schedule
        # What the collective of a pair brings is what the pair holds.
        whole = OpChoice(BASELINE.name, system.num_ranks, read.plan.engine)
        pair = build_op_plan(replace(scenario, shape=read.op.shape), whole)
        return replace(schedule, staging_bytes=pair.staging_bytes)
    except ScheduleError as error:
        unfit, message = error.rejection, f"{read.said.name}: {error.rejection.message}"
        raise item.fail(message, unfit.hint, unfit.code) from None


def _check_staging(plan: Plan, parts: Sequence[ReadPart]) -> None:
    """Refuse memory that is said to be less, or free earlier, than the plan needs."""
    holders = plan.holders()
    for part, read in zip(plan.parts, parts, strict=True):
        if read.said.staging is None:
            continue
        num_bytes, until = read.said.staging
        items = read.item.members()["staging"].members()
        if num_bytes != part.schedule.staging_bytes:
            raise items["bytes"].fail(f"{part.name} needs {part.schedule.staging_bytes} bytes")
        needed = (part.op, *holders[part.op])
        if until != needed:
            raise items["until"].fail(f"what {part.name} holds is needed until {listing(needed)} have ended")


def _check_schema(document: Item) -> None:
    """Refuse another schema before its keys are looked at."""
    found = document.members().get("schema")
    if found is not None and found.value in OLD_SCHEMAS:
        message = f"{found.value} is an older form of plans, this release reads {SCHEMA}"
        raise found.fail(message, "write the plan anew: magus plan FILE --schedule NAME --format json")
    if found is not None and found.value != SCHEMA:
        raise found.fail(f"this release reads {SCHEMA}", f'"schema": "{SCHEMA}"')


def _names(workload: Workload, item: Item, scenario: ScenarioInFile) -> dict[str, str]:
    """What ops of the file are called here: names are no part of what a plan fits, the order of ops is."""
    _check_counts(workload, item, scenario)
    ours, theirs = (
        layers_of(cut_up(workload, scenario.cut), min(scenario.layers, SHOWN_LAYERS)).ops,
        scenario.ops,
    )
    if len(ours) != len(theirs):
        message = f"the plan is for {len(theirs)} ops, {workload.name} has {len(ours)}"
        raise item.members()["ops"].fail(message, _FIT, Code.MGS524)
    names = [op["name"] for op in theirs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise item.members()["ops"].fail(f"two ops have the name '{name[:64]}'")
    return {base_name(name): base_name(op.name) for name, op in zip(reversed(names), reversed(ours), strict=True)}


def _check_counts(workload: Workload, item: Item, scenario: ScenarioInFile) -> None:
    """Refuse batches, groups and layers that the workload cannot have."""
    counts = batch_counts(workload)
    if scenario.batches not in counts:
        possible = f"numbers of batches that are possible: {listing(map(str, counts))}"
        message = f"{workload.name} cannot be cut into {scenario.batches} batches"
        raise item.members()["batches"].fail(message, possible, Code.MGS524)
    try:
        cut_up(workload, scenario.cut)
    except PlanError as error:
        raise item.members()["groups"].fail(error.rejection.message, _FIT, Code.MGS524) from None
    if scenario.layers > workload.num_layers:
        message = f"the plan has {scenario.layers} layers, {workload.name} has {workload.num_layers}"
        raise item.members()["layers"].fail(message, _FIT, Code.MGS524)


def _graph_that_fits(system: System, workload: Workload, scenario: ScenarioInFile, item: Item) -> Workload:
    """The workload cut and in the layers of the plan, if all else is that of the scenario."""
    ours, theirs = fingerprint(system, workload, scenario.cut, scenario.layers), item.members()
    _compare(item, "ranks", theirs["ranks"].value, ours["ranks"], workload.name)
    our_ops = ours["ops"]
    assert isinstance(our_ops, list), "a fingerprint lists ops"
    for our, their in zip(our_ops, theirs["ops"].items(len(our_ops)), strict=True):
        assert isinstance(our, dict), "an op is an object"
        members = their.members()
        for key in dict.fromkeys((*our, *members)):
            _compare(their, key, members[key].value if key in members else None, our.get(key), workload.name)
    return layers_of(cut_up(workload, scenario.cut), scenario.layers)


def _compare(item: Item, key: str, theirs: object, ours: object, name: str) -> None:
    found, wanted = (json.dumps(value, sort_keys=True) for value in (theirs, ours))
    if found != wanted:  # as texts: true is no 1
        raise item.fail(f"{key}: the plan is for {found[:80]}, {name} has {wanted[:80]}", _FIT, Code.MGS524)


def _read_parts(system: System, graph: Workload, plans: Sequence[Item], items: Sequence[Item]) -> tuple[ReadPart, ...]:
    """Read all parts, and report each that is wrong."""
    report = items[0].origin.report
    known = _known_parts(graph, {str(item.members()["name"].value) for item in items if "name" in item.members()})
    read: dict[tuple[int, int], tuple[WrittenPlan, str | None]] = {}
    parts = list[ReadPart]()
    with report.whole():
        for item in items:
            with report.attempt():
                said = PART.read(item)
                op, workload = _op_of(item, said, known)
                item.members()["plan"].number(0, len(plans) - 1)
                key = said.plan, workload.num_kernels
                if key not in read:
                    read[key] = _read_steps(plans[said.plan], system.num_ranks, workload.num_kernels)
                parts.append(ReadPart(said, item, op, workload, *read[key]))
    return tuple(parts)


def _read_steps(item: Item, ranks: int, kernels: int) -> tuple[WrittenPlan, str | None]:
    members = item.members()
    engines = ENGINE.read(members["engine"]).count if "engine" in members else 1
    plan = plan_form(StepLimits(ranks, engines, kernels)).read(item)
    return plan, members["expression"].any_text() if "expression" in members else None


def _known_parts(workload: Workload, named: set[str]) -> dict[str, tuple[Op, OpShape]]:
    """The parts that there can be; an op of which the collective is named has its kernel as the other part."""
    known: dict[str, tuple[Op, OpShape]] = {}
    for op in workload.ops:
        collective = collective_name(op)
        whole = not (op.is_pair and op.shape.then is None and collective in named)
        known[op.name] = op, op.shape if whole else kernel_alone(op.shape)
        if not whole:
            known[collective] = op, collective_alone(op.shape)
    return known


def _op_of(item: Item, said: PartInFile, known: dict[str, tuple[Op, OpShape]]) -> tuple[Op, OpShape]:
    members = item.members()
    if said.name not in known:
        hint = did_you_mean(said.name, known) or f"parts are {listing(known)}"
        raise members["name"].fail(f"unknown part '{said.name[:64]}'", hint, Code.MGS203)
    op, workload = known[said.name]
    if said.op != op.name:
        raise members["op"].fail(f"{said.name} is a part of {op.name}")
    if said.layer != op.layer:
        raise members.get("layer", item).fail(f"{said.name} is in layer {op.layer}")
    return op, workload


def _part(read: ReadPart, schedule: OpPlan) -> Part:
    said, usual = read.said, COLLECTIVES_STREAM if read.shape.is_collective else 0
    return Part(
        said.name,
        read.op.name,
        read.shape,
        schedule,
        usual if said.stream is None else said.stream,
        said.priority,
        tuple(dict.fromkeys(said.waits)),
        tuple(dict.fromkeys(said.step_waits)),
        read.op.layer,
        said.behind_kernels,
    )
