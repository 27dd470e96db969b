"""Write plans as JSON, ``magus-plan/2``, with their hash.

A file says what the plan fits, and lists its parts in issue order; each has the steps of one op, kernel or collective,
and parts with the same steps share them. ``from_json.py`` reads plans back, ``forms.py`` publishes their form. Values
that are usual are left out, so that each plan has one form.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any

from ..codes import Code
from ..ir import (
    COLLECTIVES_STREAM,
    UNCUT,
    Direction,
    EngineChoice,
    ExecutionOptions,
    IndexRange,
    JsonObject,
    KernelShape,
    Made,
    OpCase,
    OpPlan,
    OpShape,
    Part,
    Plan,
    Reach,
    Read,
    Reduction,
    Region,
    Rejection,
    Step,
    System,
    TileGroup,
    Transfer,
    Workload,
    WorkloadCut,
    WrittenPlan,
)
from ..planning.build import ScheduleError, compute_sms, non_default_options, values_of
from ..planning.groups import cut_up
from ..planning.knobs.base import value_text
from ..planning.knobs.execution import SPLIT_K, TILE
from ..planning.plan import layers_of

SCHEMA = "magus-plan/2"
SHOWN_LAYERS = 2
"""Layers of which ops are listed in the scenario: what the second reads of the first, every later one does."""

_NAMES_OF_OPS = ("name", "op", "on", "from", "until")
"""Keys of the scenario and of parts whose values are names of ops or begin with one."""
_OPENED = ("scenario", "ops", "plans", "parts", "steps", "ranks", "overrides")
"""Keys whose values are written on several lines."""


def op_plan_document(scenario: OpCase, schedule: OpPlan) -> JsonObject:
    """Return ``schedule`` of the one op of ``scenario`` as a JSON object, with what it fits and its hash."""
    shape = scenario.shape
    return plan_document(scenario.system, Workload.of_one(shape), Plan.of_one(shape.output, shape, schedule))


def plan_document(system: System, workload: Workload, plan: Plan) -> JsonObject:
    """Return ``plan`` as a JSON object, with what it fits and its hash; ``workload`` is one layer of it."""
    plans: list[JsonObject] = []
    places: dict[tuple[OpShape, OpPlan], int] = {}
    parts: list[JsonObject] = []
    holders = plan.holders()
    for part in plan.parts:
        key = part.shape, part.schedule
        if key not in places:
            body = _plan(OpCase(part.name, system, part.shape), part.schedule, plan.expression)
            places[key] = plans.index(body) if body in plans else len(plans)
            plans += [body] if places[key] == len(plans) else []
        parts.append(_part(part, places[key], holders[part.op]))
    body = {"schema": SCHEMA, "scenario": fingerprint(system, workload, plan.cut, plan.num_layers)}
    body |= _unusual(plan, "sums_priority")
    body |= {"plans": plans, "parts": parts}
    return {"schema": SCHEMA, "expression": plan.expression, "hash": _hash(body)} | body


def fingerprint(system: System, workload: Workload, cut: WorkloadCut = UNCUT, layers: int = 1) -> JsonObject:
    """The part of a workload, cut so, that a plan of so many layers depends on: ranks, and ops with what they read.

    The machine and its rates are left out: a plan runs on any machine with as many GPUs.
    """
    ops: list[JsonObject] = [
        {"name": op.name, **_shapes(op.shape)} | ({"reads": reads} if (reads := _reads(op.reads)) else {})
        for op in layers_of(cut_up(workload, cut), min(layers, SHOWN_LAYERS)).ops
    ]
    document: JsonObject = {"ranks": system.num_ranks} | _unusual(cut, "batches", "groups")
    document |= {"layers": layers} if layers > 1 else {}
    return document | {"ops": ops}


def _hash(document: Mapping[str, Any]) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits: the hash of the canonical JSON of a document.

    It is the same in every process and on every machine, and does not depend on names of ops, tensors and schedules.
    """
    names = [base_name(op["name"]) for op in document["scenario"]["ops"]]
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(names))}
    plans = [{key: each for key, each in plan.items() if key != "expression"} for plan in document["plans"]]
    canonical = json.dumps(
        renamed({**document, "plans": plans}, numbers), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def base_name(name: str) -> str:
    """The name of an op without its batch and layer, from that of an op or of its collective.

    >>> base_name("dh"), base_name("dh[1]@3"), base_name("dx@2.reduce_scatter")
    ('dh', 'dh', 'dx')
    """
    return re.split(r"[\[@.]", name, maxsplit=1)[0]


def renamed(document: Mapping[str, Any], names: Mapping[str, str]) -> JsonObject:
    """``document`` with other names of ops, in their batches and layers too; what has no name there keeps its own."""
    return {key: _renamed(value, names) if key in ("scenario", "parts") else value for key, value in document.items()}


def _renamed(value: Any, names: Mapping[str, str], depth: int = 4) -> Any:
    if isinstance(value, list) and depth:
        return [_renamed(each, names, depth - 1) for each in value]
    if isinstance(value, dict) and depth:
        return {
            key: _with_name(each, names) if key in _NAMES_OF_OPS else _renamed(each, names, depth - 1)
            for key, each in value.items()
        }
    return value


def _with_name(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_name(each, names) if isinstance(each, str) else each for each in value]
    base = base_name(value) if isinstance(value, str) else ""
    return f"{names[base]}{str(value)[len(base) :]}" if base in names else value


def plan_of(scenario: OpCase, schedule: OpPlan) -> WrittenPlan:
    """Return the plan of ``schedule`` without the pools of SMs and buffers, which ``build_op_plan`` derives again."""
    overlaps = schedule.compute_sms == compute_sms(scenario, schedule.engine, overlaps=True)
    rest = schedule.overrides, schedule.tactics, schedule.each_rank(scenario.num_ranks)
    return WrittenPlan(schedule.engine, schedule.steps, *rest, overlaps)


def unwritable(message: str, hint: str = "") -> ScheduleError:
    """Return the error of a schedule that no plan of another program is written for."""
    return ScheduleError(Rejection(Code.MGS550, message, hint))


SEVERAL, ONE_OWNER = "rows of several ranks", "a schedule such as ring or double_ring"


def document_text(document: JsonObject) -> str:
    """Return a document as readable JSON: one step, one part and one op per line."""
    return _text(document, "scenario", "") + "\n"


def _text(value: Any, key: str, indent: str) -> str:
    """The value of ``key``, below ``indent``; items of a list stand under its key."""
    inner = f"{indent}  "
    if isinstance(value, dict) and key in ("scenario", "plans"):
        lines = [f"{inner}{json.dumps(name)}: {_text(each, name, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and value and key in _OPENED:
        return "[\n" + ",\n".join(f"{inner}{_text(each, key, inner)}" for each in value) + f"\n{indent}]"
    return json.dumps(value)


def _shapes(shape: OpShape) -> JsonObject:
    """The pattern, and if there are any: moved tensor, kernels, rows that each rank sends."""
    document: JsonObject = {"pattern": shape.pattern.value}
    if shape.moved is not None:
        moved = shape.moved
        document["moved"] = {"rows": moved.rows, "cols": moved.cols, "dtype": moved.dtype.value}
    if shape.gemm is not None:
        document["gemm"] = _shape(shape.gemm)
    if shape.kernel is not None:
        document["kernel"] = _kernel(shape.kernel)
    if shape.then is not None:
        document["then"] = _kernel(shape.then.kernel)
    return document | _unusual(shape, "split", "loads", "experts")


def _kernel(kernel: KernelShape) -> JsonObject:
    return {"kind": kernel.operation, **_shape(kernel)}


def _shape(shape: KernelShape) -> JsonObject:
    # A GEMM that is part of a longer one runs at its clock, but computes the same.
    return {name: each for name, each in _plain(shape).items() if each is not None and name != "whole_flops"}


def _plain(value: Any) -> Any:
    """A value as JSON: the word of a member, the ends of a span, any other dataclass by its fields."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, IndexRange):
        return [value.start, value.stop]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return {name: _plain(getattr(value, name)) for name in _defaults(value.__class__)}


def _unusual(value: Any, *names: str) -> JsonObject:
    """Those of the fields that do not have their default."""
    usual = _defaults(value.__class__)
    return {name: _plain(each) for name in names if (each := getattr(value, name)) != usual[name]}


@cache
def _defaults(kind: type) -> dict[str, Any]:
    """The defaults of all fields of a dataclass: steps are many, and their kinds few."""
    return {each.name: each.default for each in fields(kind)}


def _reads(reads: tuple[Read, ...]) -> list[JsonObject]:
    """Reads of what other ops make; those of declared tensors say nothing of a plan."""
    return [_read(read) for read in reads if read.made_by]


def _read(read: Read) -> JsonObject:
    document: JsonObject = {"from": read.made_by}
    document |= {"what": "moved"} if read.what is Made.MOVED else {}
    return document | _unusual(read, "by_rows", "moves")


def _plan(scenario: OpCase, schedule: OpPlan, of_whole: str) -> JsonObject:
    """The steps of one part: one list for all ranks, or one per rank; its name where the whole has another one."""
    plan = plan_of(scenario, schedule)
    body: JsonObject = {} if schedule.expression == of_whole else {"expression": schedule.expression}
    body |= {**engine_and_tactics(plan.engine, plan.tactics), "overlaps": plan.overlaps}
    if plan.by_rank:
        return {**body, "ranks": [[_step(step) for step in steps] for steps in plan.by_rank]}
    body["steps"] = [_step(step) for step in plan.steps]
    if plan.overrides:
        body["overrides"] = [{"rank": each.rank, "step": _step(each.step)} for each in plan.overrides]
    return body


def _part(part: Part, place: int, holders: tuple[str, ...]) -> JsonObject:
    usual = COLLECTIVES_STREAM if part.shape.is_collective else 0
    document: JsonObject = {"name": part.name, "op": part.op, "plan": place} | _unusual(part, "layer")
    document |= {"stream": part.stream} if part.stream != usual else {}
    document |= _unusual(part, "priority", "behind_kernels")
    if part.schedule.staging_bytes:
        document["staging"] = {"bytes": part.schedule.staging_bytes, "until": [part.op, *holders]}
    waits = [{"on": one.on, "what": one.what.name.lower()} | _unusual(one, "kernels_only") for one in part.waits]
    document |= {"waits": waits} if waits else {}
    return document | _unusual(part, "step_waits")


def engine_and_tactics(engine: EngineChoice, tactics: ExecutionOptions) -> JsonObject:
    """Return the engine that copies and the execution options of a plan, under ``engine`` and ``tactics``."""
    as_numbers = {TILE.word: list(tactics.tile), SPLIT_K.word: tactics.split_k if tactics.split_k > 1 else 0}
    words: JsonObject = {
        word: value_text(value) for word, value in values_of(tactics).items() if word not in as_numbers
    }
    return {
        "engine": {"kind": engine.kind.value, "count": engine.count, "mode": engine.mode.name.lower()},
        "tactics": words | {word: value for word, value in as_numbers.items() if value},
    }


def _step(step: Step) -> JsonObject:
    document: JsonObject
    match step:
        case Transfer():
            document = {"kind": step.direction.value, "name": step.name, "region": _region(step.region)}
            document |= {"peer": "all" if step.reach is Reach.ALL else step.peer, "signal": step.signal}
            return document | _unusual(step, "after", "peer_after", "lane", "reduce", "origin")
        case TileGroup():
            document = {"kind": "tiles", "name": step.name, "regions": [*map(_region, step.regions)]}
            document |= {"k": _plain(step.k)}
            return document | _unusual(step, "after", "stream", "more_k", "accumulate", "kernel")
        case Reduction():
            document = {"kind": "reduction", "name": step.name, "region": _region(step.region)}
            document |= {"parts": step.num_parts}
            return document | _unusual(step, "after", "stream")


def _region(region: Region) -> JsonObject:
    document: JsonObject = {"owner": region.owner, "rows": _plain(region.rows), "cols": _plain(region.cols)}
    return document | ({"also": [*region.also]} if region.also else {})


def plan_text(scenario: OpCase, schedule: OpPlan, name: str) -> str:
    """``schedule NAME for WORKLOAD { plan ... }`` with every transfer, tile group and wait.

    Ranks with different steps get a block ``rank r { ... }`` each. The text compiles to the same SM and buffer pools.
    """
    lines = [f"schedule {name} for {scenario.shape.name} {{", f"  plan by {_head(scenario, schedule)}"]
    for rank, steps in enumerate(schedule.each_rank(scenario.num_ranks)):
        inner = [f"    {_step_text(scenario, step)}" for step in steps]
        lines += [f"  rank {rank} {{", *inner, "  }"] if inner else [f"  rank {rank} {{ }}"]
    if not schedule.by_rank:
        lines += [f"  {_step_text(scenario, step)}" for step in schedule.steps]
    for override in schedule.overrides:
        lines.append(f"  override rank {override.rank} {{ {_step_text(scenario, override.step)} }}")
    return "\n".join([*lines, "}"]) + "\n"


def _head(scenario: OpCase, schedule: OpPlan) -> str:
    alone = schedule.compute_sms != compute_sms(scenario, schedule.engine, overlaps=True)
    words = [str(schedule.engine), *(["alone"] if alone else [])]
    return " ".join([*words, *(f"{word} {value}" for word, value in non_default_options(schedule.tactics))])


def _step_text(scenario: OpCase, step: Step) -> str:
    moved = scenario.shape.moved
    tensor = moved.name if moved is not None else scenario.shape.output
    match step:
        case Transfer():
            side = "to" if step.direction is Direction.PUT else "from"
            whom = "all" if step.reach is Reach.ALL else step.peer
            words = [f"{step.direction.value} {_region_text(tensor, step.region)}"]
            words += [f"of {step.origin}"] if step.origin else []
            words += [f"{side} {whom} signal {step.signal}"]
            words += [*_after(step.after), *(f"peer_{each}" for each in _after(step.peer_after))]
            words += [] if step.lane is None else [f"lane {step.lane}"]
            words += ["reduce"] if step.reduce else []
        case TileGroup():
            output = scenario.shape.stage(step.kernel).output
            words = ["compute " + ", ".join(_region_text(output, region) for region in step.regions)]
            words.append(f"k {', '.join(map(str, step.slices))}")
            words += [*_after(step.after), f"stream {step.stream}", *(["accumulate"] if step.accumulate else [])]
        case Reduction():
            words = [f"reduce {_region_text(tensor, step.region)} parts {step.num_parts}"]
            words += [*_after(step.after), f"stream {step.stream}"]
    return f"{step.name} = {' '.join(words)}"


def _region_text(tensor: str, region: Region) -> str:
    return f"{tensor}.shard({', '.join(map(str, region.owners))})[{region.rows}, {region.cols}]"


def _after(names: Iterable[str]) -> list[str]:
    joined = ", ".join(names)
    return [f"after {joined}"] if joined else []
