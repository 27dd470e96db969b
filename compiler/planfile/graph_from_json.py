"""Read plans of graphs from JSON, ``magus-graph-plan/1``; the input is not trusted.

This module checks the form, the graph that the plan is for, the plans of parts and the hash; ``verify/graph_check.py``
checks that all ops are there and what parts wait for.
"""

import json
from dataclasses import dataclass, field, replace

from ..codes import Code
from ..ir import (
    Awaited,
    Choice,
    Graph,
    GraphOp,
    GraphPlan,
    GraphScenario,
    Part,
    PartWait,
    PlanFault,
    Scenario,
    Schedule,
    StepWait,
    Workload,
)
from ..planning.build import ScheduleError, build_schedule
from ..planning.graph_batches import batch_counts, in_batches
from ..planning.graph_build import COLLECTIVES_STREAM
from ..planning.graph_halves import collective_alone, kernel_alone
from ..planning.graph_layers import layers_of
from ..planning.graph_order import collective_name
from ..templates import BASELINE
from ..text.diagnostics import did_you_mean, listing
from ..text.json_items import Item
from ..text.vocabulary import MAX_STREAMS
from ..verify.check import check_plan
from ..verify.graph_check import check_graph_plan
from .from_json import MAX_STEPS, read_body
from .graph_to_json import graph_fingerprint, graph_plan_hash
from .to_json import GRAPH_SCHEMA

MAX_LAYERS = 64
MAX_PARTS = 4096
MAX_PRIORITY = 100
MAX_WAITS = 1 << 15
"""Waits of one part for steps of others."""
MAX_SHOWN_FAULTS = 20
PLAN_KEYS = ("expression", "tactics", "overlaps", "steps", "overrides", "ranks")
PART_KEYS = ("layer", "stream", "priority", "behind_kernels", "staging", "waits", "step_waits")
AWAITED = {awaited.name.lower(): awaited for awaited in Awaited}


def read_graph_plan(scenario: GraphScenario, document: Item) -> GraphPlan:
    """Read a plan for the layers of ``scenario``, as many as it has.

    Raises
    ------
    Stopped
        If the document has another form, is for another graph, or cannot run; its report has diagnostics.
    """
    entries = document.entries(("schema", "scenario", "plans", "parts"), ("expression", "hash", "sums_priority"))
    if entries["schema"].value != GRAPH_SCHEMA:
        hint = f'"schema": "{GRAPH_SCHEMA}"'
        raise entries["schema"].fail(f"of graphs this release reads {GRAPH_SCHEMA}", hint)
    graph = _graph_that_fits(scenario, entries["scenario"])
    members = {key: item.value for key, item in entries.items()}
    if "hash" in entries and entries["hash"].text() != graph_plan_hash(members):  # type: ignore[arg-type]
        hint = "leave the key 'hash' out, or write the plan anew: magus plan --format json"
        raise entries["hash"].fail("this is not the hash of this plan, which was changed", hint, Code.MGS525)
    reader = _Reader(scenario, graph, entries["plans"].items(MAX_PARTS))
    plan = reader.plan(entries)
    _report(document, check_graph_plan(scenario.system, reader.graph, plan))
    reader.check_staging(entries["parts"], plan)
    return plan


def _graph_that_fits(scenario: GraphScenario, item: Item) -> Graph:
    """The graph in the batches and layers of the plan, if all else is that of the scenario."""
    theirs = item.entries(("ranks", "batches", "layers", "ops"))
    repeat, counts = scenario.graph.repeat, batch_counts(scenario.graph)
    batches = theirs["batches"].number(1, max(counts))
    if batches not in counts:
        possible = f"numbers of batches that are possible: {listing(map(str, counts))}"
        raise theirs["batches"].fail(f"{scenario.name} cannot be cut into {batches} batches", possible, Code.MGS524)
    layers = theirs["layers"].number(1, min(MAX_LAYERS, 1 if repeat is None else repeat.count))
    ours = graph_fingerprint(scenario.system, scenario.graph, batches, layers)
    hint = "a plan fits the graph and the number of GPUs it was made for"
    if theirs["ranks"].value != ours["ranks"]:
        message = f"the plan is for {json.dumps(theirs['ranks'].value)[:40]} GPUs, {scenario.name} has {ours['ranks']}"
        raise theirs["ranks"].fail(message, hint, Code.MGS524)
    our_ops, their_ops = ours["ops"], theirs["ops"].items(MAX_PARTS)
    assert isinstance(our_ops, list), "a fingerprint lists ops"
    if len(our_ops) != len(their_ops):
        message = f"the plan is for {len(their_ops)} ops, {scenario.name} has {len(our_ops)}"
        raise theirs["ops"].fail(message, hint, Code.MGS524)
    for our, their in zip(our_ops, their_ops, strict=True):
        assert isinstance(our, dict), "an op is an object"
        members = their.members()
        for key in dict.fromkeys((*our, *members)):
            theirs_of_key = members[key].value if key in members else None
            if theirs_of_key != our.get(key):
                found, wanted = (json.dumps(value)[:80] for value in (theirs_of_key, our.get(key)))
                message = f"{key[:64]} of {our['name']}: the plan is for {found}, {scenario.name} has {wanted}"
                raise their.fail(message, hint, Code.MGS524)
    return layers_of(in_batches(scenario.graph, batches), layers)


def _report(item: Item, faults: tuple[PlanFault, ...]) -> None:
    """Report faults, and stop if there are any."""
    for fault in faults[:MAX_SHOWN_FAULTS]:
        item.fail(fault.message, fault.hint, fault.code)
    if faults:
        raise item.origin.report.stop()


@dataclass(slots=True)
class _Reader:
    """Reads the parts of one plan; layers that are alike share what is read."""

    scenario: GraphScenario
    graph: Graph
    plans: tuple[Item, ...]
    schedules: dict[tuple[int, Workload], Schedule] = field(default_factory=dict)
    workloads: dict[str, tuple[GraphOp, Workload]] = field(default_factory=dict)  # by the names of parts

    def plan(self, entries: dict[str, Item]) -> GraphPlan:
        """Read all parts, and report each that is wrong."""
        report, items = entries["parts"].origin.report, entries["parts"].items(MAX_PARTS, least=1)
        names = [item.members()["name"].value for item in items if "name" in item.members()]
        named = {name for name in names if isinstance(name, str)}
        for op in self.graph.ops:
            collective = collective_name(op)
            whole = not (op.is_pair and op.workload.then is None and collective in named)
            self.workloads[op.name] = op, op.workload if whole else kernel_alone(op.workload)
            if not whole:
                self.workloads[collective] = op, collective_alone(op.workload)
        failures, parts = report.num_failures, list[Part]()
        for item in items:
            with report.attempt():
                parts.append(self._part(item))
        if report.num_failures > failures:
            raise report.stop()
        expression = entries["expression"].any_text() if "expression" in entries else ""
        priority = entries["sums_priority"].number(-MAX_PRIORITY, MAX_PRIORITY) if "sums_priority" in entries else 0
        return GraphPlan(expression, tuple(parts), priority)

    def _part(self, item: Item) -> Part:
        entries = item.entries(("name", "op", "plan"), PART_KEYS)
        name = entries["name"].text()
        if name not in self.workloads:
            hint = did_you_mean(name, self.workloads) or f"parts are {listing(self.workloads)}"
            raise entries["name"].fail(f"unknown part '{name[:64]}'", hint, Code.MGS203)
        op, workload = self.workloads[name]
        if entries["op"].value != op.name:
            raise entries["op"].fail(f"{name} is a part of {op.name}")
        if "layer" in entries and entries["layer"].value != op.layer:
            raise entries["layer"].fail(f"{name} is in layer {op.layer}")
        usual = COLLECTIVES_STREAM if workload.is_collective else 0
        return Part(
            name,
            op.name,
            workload,
            self._schedule(entries["plan"], name, op, workload),
            entries["stream"].number(COLLECTIVES_STREAM, MAX_STREAMS - 1) if "stream" in entries else usual,
            entries["priority"].number(-MAX_PRIORITY, MAX_PRIORITY) if "priority" in entries else 0,
            _waits(entries),
            _step_waits(entries),
            op.layer,
            "behind_kernels" in entries and entries["behind_kernels"].flag(),
        )

    def _schedule(self, item: Item, name: str, op: GraphOp, workload: Workload) -> Schedule:
        place = item.number(0, len(self.plans) - 1)
        key = place, workload
        if key not in self.schedules:
            document = self.plans[place]
            entries, scenario = document.entries(("scenario", "engine"), PLAN_KEYS), self._scenario(name, workload)
            expression = entries["expression"].any_text() if "expression" in entries else name
            plan = read_body(scenario, document, entries)
            try:
                schedule = build_schedule(scenario, plan, expression)
                if workload.is_collective and op.is_pair:  # what it brings is what the pair holds
                    whole = Choice(BASELINE.name, self.scenario.num_ranks, plan.engine)
                    pair = build_schedule(self._scenario(name, op.workload), whole)
                    schedule = replace(schedule, staging_bytes=pair.staging_bytes)
            except ScheduleError as error:
                unfit = error.rejection
                raise document.fail(f"{name}: {unfit.message}", unfit.hint, unfit.code) from None
            faults = check_plan(scenario, schedule)
            _report(document, tuple(replace(fault, message=f"{name}: {fault.message}") for fault in faults))
            self.schedules[key] = schedule
        return self.schedules[key]

    def _scenario(self, name: str, workload: Workload) -> Scenario:
        return Scenario(name, self.scenario.system, workload)

    def check_staging(self, item: Item, plan: GraphPlan) -> None:
        """Refuse memory that is said to be less, or free earlier, than the plan needs."""
        holders = plan.holders()
        for part, each in zip(plan.parts, item.items(MAX_PARTS), strict=True):
            if "staging" not in each.members():
                continue
            entries = each.members()["staging"].entries(("bytes", "until"))
            if entries["bytes"].value != part.schedule.staging_bytes:
                raise entries["bytes"].fail(f"{part.name} needs {part.schedule.staging_bytes} bytes")
            until = [part.op, *holders[part.op]]
            if entries["until"].value != until:
                raise entries["until"].fail(f"what {part.name} holds is needed until {listing(until)} have ended")


def _waits(entries: dict[str, Item]) -> tuple[PartWait, ...]:
    found = []
    for item in entries["waits"].items(MAX_STEPS) if "waits" in entries else ():
        wait = item.entries(("on", "what"), ("kernels_only",))
        kernels_only = "kernels_only" in wait and wait["kernels_only"].flag()
        found.append(PartWait(wait["on"].text(), AWAITED[wait["what"].word(tuple(AWAITED))], kernels_only))
    return tuple(dict.fromkeys(found))


def _step_waits(entries: dict[str, Item]) -> tuple[StepWait, ...]:
    found = []
    for item in entries["step_waits"].items(MAX_WAITS) if "step_waits" in entries else ():
        wait = item.entries(("step", "on", "of"))
        found.append(StepWait(wait["step"].name(), wait["on"].text(), wait["of"].name()))
    return tuple(dict.fromkeys(found))
