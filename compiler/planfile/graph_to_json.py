"""Write plans of graphs as JSON, ``magus-graph-plan/1``, with their hash.

Each part has the plan of its pair, kernel or collective in the form of ``to_json.py``; parts with the same plan, such
as those of layers that repeat, share it. ``graph_from_json.py`` reads them back.
"""

import json

from ..ir import Graph, GraphPlan, Made, Part, Read, Scenario, Schedule, System, Workload
from ..planning.graph_batches import in_batches
from ..planning.graph_layers import layers_of
from .fingerprint import Json, fingerprint
from .to_json import GRAPH_SCHEMA, document_text, hash_of, plan_body, plan_of

SHOWN_LAYERS = 2
"""Layers of which ops are listed in the scenario: what the second reads of the first, every later one does."""


def graph_plan_document(system: System, graph: Graph, plan: GraphPlan) -> dict[str, Json]:
    """Return ``plan`` as a JSON object, with what it fits and its hash; ``graph`` is one layer."""
    plans: list[Json] = []
    places: dict[tuple[Workload, Schedule], int] = {}
    parts: list[Json] = []
    holders = plan.holders()
    for part in plan.parts:
        key = part.workload, part.schedule
        if key not in places:
            body = _plan(Scenario(part.name, system, part.workload), part.schedule)
            places[key] = plans.index(body) if body in plans else len(plans)
            plans += [body] if places[key] == len(plans) else []
        parts.append(_part(part, places[key], holders[part.op]))
    body = {
        "schema": GRAPH_SCHEMA,
        "scenario": graph_fingerprint(system, graph, plan.num_batches, plan.num_layers),
        "sums_priority": plan.sums_priority,
        "plans": plans,
        "parts": parts,
    }
    return {"schema": GRAPH_SCHEMA, "expression": plan.expression, "hash": hash_of(body)} | body


def graph_fingerprint(system: System, graph: Graph, batches: int, layers: int) -> dict[str, Json]:
    """The part of a graph that a plan of so many batches and layers depends on: ranks, and ops with what they read."""
    ops: list[Json] = [
        {"name": op.name, **_shapes(op.name, system, op.workload), "reads": [_read(read) for read in op.reads]}
        for op in layers_of(in_batches(graph, batches), min(layers, SHOWN_LAYERS)).ops
    ]
    return {"ranks": system.num_ranks, "batches": batches, "layers": layers, "ops": ops}


def graph_plan_hash(document: dict[str, Json]) -> str:
    """Return the hash of a document, which it may have or not."""
    return hash_of({key: value for key, value in document.items() if key not in ("expression", "hash")})


def graph_plan_text(document: dict[str, Json]) -> str:
    """Return a document as readable JSON: one step, one part and one op per line."""
    lines = [f"  {json.dumps(key)}: {_text(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _text(value: Json) -> str:
    """A member of the document, its lists of objects one object below the other."""
    if isinstance(value, dict):
        inner = document_text(value)
    elif isinstance(value, list) and value:
        inner = "[\n" + ",\n".join(_indented(_item_text(each), "  ") for each in value) + "\n]"
    else:
        return json.dumps(value)
    return _indented(inner.rstrip(), "  ").lstrip()


def _item_text(value: Json) -> str:
    """An item of a list on one line; only a plan has several."""
    is_plan = isinstance(value, dict) and ("steps" in value or "ranks" in value)
    return document_text(value).rstrip() if isinstance(value, dict) and is_plan else json.dumps(value)


def _indented(text: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in text.split("\n"))


def _plan(scenario: Scenario, schedule: Schedule) -> dict[str, Json]:
    return {"expression": schedule.expression} | plan_body(scenario, plan_of(scenario, schedule))


def _shapes(name: str, system: System, workload: Workload) -> dict[str, Json]:
    return {key: value for key, value in fingerprint(Scenario(name, system, workload)).items() if key != "ranks"}


def _read(read: Read) -> Json:
    """A read of a declared tensor says nothing of the plan but that it is none of an op."""
    if not read.made_by:
        return {"from": None}
    document: dict[str, Json] = {"from": read.made_by}
    document |= {"what": "moved"} if read.what is Made.MOVED else {}
    document |= {"by_rows": True} if read.by_rows else {}
    return document | ({"moves": True} if read.moves else {})


def _part(part: Part, place: int, holders: tuple[str, ...]) -> Json:
    document: dict[str, Json] = {"name": part.name, "op": part.op, "layer": part.layer, "plan": place}
    document |= {"stream": part.stream}
    document |= {"priority": part.priority} if part.priority else {}
    document |= {"behind_kernels": True} if part.behind_kernels else {}
    if part.schedule.staging_bytes:
        document["staging"] = {"bytes": part.schedule.staging_bytes, "until": [part.op, *holders]}
    waits = [_wait(wait.on, wait.what.name.lower(), wait.kernels_only) for wait in part.waits]
    document |= {"waits": waits} if waits else {}
    steps: list[Json] = [{"step": wait.step, "on": wait.on, "of": wait.of} for wait in part.step_waits]
    return document | ({"step_waits": steps} if steps else {})


def _wait(on: str, what: str, kernels_only: bool) -> Json:
    return {"on": on, "what": what} | ({"kernels_only": True} if kernels_only else {})
