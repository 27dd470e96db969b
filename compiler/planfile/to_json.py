"""Write chunk plans as JSON, ``magus-plan/1``, with their hash.

``from_json.py`` reads them back, ``json_schema.py`` publishes their form. Steps leave out default values, so that each
plan has one form. The hash covers the plan, without its name and the names of tensors.
"""

import hashlib
import json

from ..ir import (
    EngineChoice,
    ExecutionOptions,
    IndexRange,
    Plan,
    Reach,
    Reduction,
    Region,
    Scenario,
    Schedule,
    Step,
    TileGroup,
    Transfer,
)
from ..planning.build import compute_sms
from ..planning.execution import values_of
from .fingerprint import Json, fingerprint

SCHEMA = "magus-plan/1"
GRAPH_SCHEMA = "magus-graph-plan/1"
"""That of plans of graphs, ``graph_to_json.py``."""


def plan_document(scenario: Scenario, schedule: Schedule) -> dict[str, Json]:
    """Return ``schedule`` as a JSON object, with its fingerprint and hash."""
    body: dict[str, Json] = {"schema": SCHEMA, **plan_body(scenario, plan_of(scenario, schedule))}
    return {"schema": SCHEMA, "expression": schedule.expression, "hash": hash_of(body)} | body


def plan_hash(scenario: Scenario, plan: Plan) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits: the hash of the canonical JSON of a plan and of what it fits.

    It is the same in every process and on every machine, and does not depend on names.
    """
    return hash_of({"schema": SCHEMA, **plan_body(scenario, plan)})


def plan_of(scenario: Scenario, schedule: Schedule) -> Plan:
    """Return the plan of ``schedule`` without the pools of SMs and buffers, which ``build_schedule`` derives again."""
    overlaps = schedule.compute_sms == compute_sms(scenario, schedule.engine, overlaps=True)
    rest = schedule.overrides, schedule.tactics, schedule.each_rank(scenario.num_ranks)
    return Plan(schedule.engine, schedule.steps, *rest, overlaps)


def document_text(document: dict[str, Json]) -> str:
    """Return a document as readable JSON, one step per line."""
    lines = [f"  {json.dumps(key)}: {_value_text(value, '  ')}" for key, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value_text(value: Json, indent: str) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    inner = indent + "  "
    return "[\n" + ",\n".join(inner + _value_text(each, inner) for each in value) + f"\n{indent}]"


def hash_of(body: dict[str, Json]) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits of the canonical JSON of a document."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def plan_body(scenario: Scenario, plan: Plan) -> dict[str, Json]:
    """Return everything but names, schema and hash; one list of steps for all ranks, or one per rank."""
    body: dict[str, Json] = {
        "scenario": fingerprint(scenario),
        "engine": _engine(plan.engine),
        "tactics": _tactics(plan.tactics),
        "overlaps": plan.overlaps,
    }
    if plan.by_rank:
        return {**body, "ranks": [[_step(step) for step in steps] for steps in plan.by_rank]}
    body["steps"] = [_step(step) for step in plan.steps]
    if plan.overrides:
        body["overrides"] = [{"rank": each.rank, "step": _step(each.step)} for each in plan.overrides]
    return body


def _engine(engine: EngineChoice) -> Json:
    return {"kind": engine.kind.value, "count": engine.count, "mode": engine.mode.name.lower()}


def _tactics(tactics: ExecutionOptions) -> Json:
    return {word: str(value.value) for word, value in values_of(tactics).items()}


def _step(step: Step) -> Json:
    match step:
        case Transfer():
            document = _transfer(step)
        case TileGroup():
            document = {"kind": "tiles", "name": step.name, "regions": [_region(region) for region in step.regions]}
            document |= {"k": _span(step.k)} | _queue(step.after, step.stream)
            document |= {"accumulate": True} if step.accumulate else {}
            document |= {"kernel": step.kernel} if step.kernel else {}
        case Reduction():
            document = {"kind": "reduction", "name": step.name, "region": _region(step.region), "parts": step.num_parts}
            document |= _queue(step.after, step.stream)
    return document


def _transfer(step: Transfer) -> dict[str, Json]:
    document: dict[str, Json] = {"kind": step.direction.value, "name": step.name, "region": _region(step.region)}
    document["peer"] = "all" if step.reach is Reach.ALL else step.peer
    document["signal"] = step.signal
    document |= {"after": list(step.after)} if step.after else {}
    document |= {"lane": step.lane} if step.lane is not None else {}
    return document | ({"reduce": True} if step.reduce else {})


def _queue(after: tuple[str, ...], stream: int) -> dict[str, Json]:
    waits: dict[str, Json] = {"after": list(after)} if after else {}
    return waits | ({"stream": stream} if stream else {})


def _region(region: Region) -> Json:
    return {"owner": region.owner, "rows": _span(region.rows), "cols": _span(region.cols)}


def _span(span: IndexRange) -> Json:
    return [span.start, span.stop]
