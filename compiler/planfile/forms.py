"""The form of ``magus-plan/2``: how plans in JSON are read, and their JSON Schema.

docs/plan.schema.json holds the schema, ``magus plan --schema`` prints it. It describes the form alone. Known names,
regions within their shards and complete transfers depend on the scenario; ``from_json.py`` and ``verify`` check them.
"""

from dataclasses import dataclass
from typing import Any

from ..codes import Code
from ..ir import (
    COLLECTIVES_STREAM,
    PLAN_MODES,
    SPLITS,
    Awaited,
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    IndexRange,
    JsonObject,
    Override,
    PartWait,
    Pattern,
    Reach,
    Reduction,
    Region,
    Step,
    StepWait,
    TileGroup,
    Transfer,
    WorkloadCut,
    WrittenPlan,
)
from ..planning.build import OPTIONS, options_from
from ..planning.knobs import Knob
from ..planning.knobs.execution import SPLIT_K, TILE
from ..text.json_forms import (
    FLAG,
    NAME,
    SHORT_TEXT,
    TEXT,
    Form,
    Item,
    list_form,
    named,
    record,
    schema_of,
    unread,
    variants,
    whole,
    word,
)
from ..text.vocabulary import MAX_BATCHES, MAX_EXTENT, MAX_GROUPS, MAX_RANKS, MAX_STREAMS
from .write import SCHEMA

OLD_SCHEMAS = ("magus-plan/1", "magus-graph-plan/1")
"""Forms from before there was one for all workloads: they are not read."""

MAX_STEPS = 4096
"""Steps of one rank."""
MAX_STEPS_OF_ALL = 1 << 15
"""Steps of all ranks together."""
MAX_ENGINES = 1 << 20
MAX_KERNELS = 2
"""Kernels of an op."""
MAX_LAYERS = 64
MAX_PARTS = 4096
MAX_PRIORITY = 100
MAX_WAITS = 1 << 15
"""Waits of one part for steps of others."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What steps may name on the system and the op that they are for: ranks, engines and kernels."""

    ranks: int = MAX_RANKS
    engines: int = MAX_ENGINES
    kernels: int = MAX_KERNELS


@dataclass(frozen=True, slots=True)
class ScenarioInFile:
    """What a plan is for, as the file says it: ranks, ops, batches, groups of experts and layers."""

    ranks: int
    ops: tuple[JsonObject, ...]
    batches: int = 1
    layers: int = 1
    groups: tuple[int, ...] = ()

    @property
    def cut(self) -> WorkloadCut:
        """How the workload is cut."""
        return WorkloadCut(self.batches, self.groups)


@dataclass(frozen=True, slots=True)
class PartInFile:
    """A part as the file says it; ``plan`` counts from 0 in the list of plans, ``stream`` is None where it is usual.

    ``staging`` is memory in bytes, and the ops after which it is free.
    """

    name: str
    op: str
    plan: int
    layer: int = 1
    stream: int | None = None
    priority: int = 0
    behind_kernels: bool = False
    staging: tuple[int, tuple[str, ...]] | None = None
    waits: tuple[PartWait, ...] = ()
    step_waits: tuple[StepWait, ...] = ()


def _read_span(item: Item) -> IndexRange:
    start, stop = (end.number(0, MAX_EXTENT) for end in item.items(2, least=2))
    if start >= stop:
        raise item.fail(f"{start}:{stop} is empty", code=Code.MGS306)
    return IndexRange(start, stop)


_NAMES = list_form(NAME, MAX_STEPS)
_PRIORITY = whole(-MAX_PRIORITY, MAX_PRIORITY)
_STREAM = whole(0, MAX_STREAMS - 1)
_SPAN = named("span", Form(_read_span, list_form(whole(0, MAX_EXTENT), 2, 2).schema))
_COUNTS = list_form(whole(0, MAX_EXTENT), MAX_RANKS)
_NUMBERS = list_form(whole(0, 1 << 62), MAX_RANKS)
_TENSOR: Form[JsonObject] = record(
    dict,
    {"rows": whole(1, MAX_EXTENT), "cols": whole(1, MAX_EXTENT), "dtype": word({each.value: each for each in DType})},
)

ENGINE = record(
    EngineChoice,
    {"kind": word({each.value: each for each in EngineKind}), "count": whole(1, MAX_ENGINES)},
    {"mode": word({mode.name.lower(): mode for mode in PLAN_MODES})},
)


def _shape(item: Item) -> JsonObject:
    """The numbers and words of a kernel, which are compared and not looked at; one may be a list of numbers."""
    for value in item.members().values():
        if isinstance(value.value, list):
            _NUMBERS.read(value)
        elif isinstance(value.value, dict):
            raise value.fail("a shape holds numbers, words and lists of numbers")
    return item.members()


_SHAPE = Form(_shape, {"type": "object"})
_READ: Form[JsonObject] = record(
    dict, {"from": SHORT_TEXT}, {"what": word({"moved": None}), "by_rows": FLAG, "moves": FLAG}
)
_OP: Form[JsonObject] = record(
    dict,
    {"name": SHORT_TEXT, "pattern": word({each.value: each for each in Pattern})},
    {
        "moved": _TENSOR,
        "gemm": _SHAPE,
        "kernel": _SHAPE,
        "then": _SHAPE,
        "split": _COUNTS,
        "loads": list_form(_COUNTS, MAX_RANKS),
        "experts": list_form(_COUNTS, MAX_RANKS),
        "reads": list_form(_READ, MAX_PARTS),
    },
)
SCENARIO = record(
    ScenarioInFile,
    {"ranks": whole(1, MAX_RANKS), "ops": list_form(_OP, MAX_PARTS, 1)},
    {
        "batches": whole(1, MAX_BATCHES),
        "groups": list_form(whole(1, MAX_EXTENT), MAX_GROUPS, 2),
        "layers": whole(1, MAX_LAYERS),
    },
)


def _transfer(kind: Direction, peer: int, **values: Any) -> Transfer:
    return Transfer(direction=kind, peer=peer, reach=Reach.PEER if peer else Reach.ALL, **values)


def _peer(ranks: int) -> Form[int]:
    """The number of a peer, 0 for all of them."""
    one = whole(1, max(1, ranks - 1))
    return Form(lambda item: 0 if item.value == "all" else one.read(item), {"oneOf": [{"const": "all"}, one.schema]})


def _step(limits: StepLimits) -> Form[Step]:
    owner = whole(0, limits.ranks - 1)
    rectangle: dict[str, Form[Any]] = {"owner": owner, "rows": _SPAN, "cols": _SPAN}
    region = named("region", record(Region, rectangle))
    also = list_form(owner, limits.ranks - 1, 1)
    of_some = named("regions", record(Region, rectangle, {"also": also}))
    queue: dict[str, Form[Any]] = {"after": _NAMES, "stream": _STREAM}
    directions = {each.value: each for each in Direction}
    transfer = record(
        _transfer,
        {"kind": word(directions), "name": NAME, "region": of_some, "peer": _peer(limits.ranks), "signal": NAME},
        {
            "after": _NAMES,
            "peer_after": _NAMES,
            "lane": whole(0, limits.engines - 1),
            "reduce": FLAG,
            "origin": owner,
        },
    )
    tiles = record(
        lambda kind, **values: TileGroup(**values),
        {"kind": word({"tiles": ""}), "name": NAME, "regions": list_form(region, MAX_STEPS, 1), "k": _SPAN},
        {
            **queue,
            "more_k": list_form(_SPAN, MAX_STEPS, 1),
            "accumulate": FLAG,
            "kernel": whole(0, max(0, limits.kernels - 1)),
        },
    )
    reduction = record(
        lambda kind, parts, **values: Reduction(num_parts=parts, **values),
        {"kind": word({"reduction": ""}), "name": NAME, "region": of_some, "parts": whole(2, max(2, limits.ranks))},
        queue,
    )
    kinds: dict[tuple[str, ...], Form[Any]] = {("tiles",): tiles, ("reduction",): reduction}
    return named("step", variants("kind", "a step", {tuple(directions): transfer, **kinds}))


def _option(knob: Knob) -> Form[Any]:
    """A value of a knob that says how a plan is carried out."""
    if knob is SPLIT_K:
        return whole(1, SPLITS[-1])
    return list_form(whole(1, MAX_EXTENT), 2, 2) if knob is TILE else word({each: each for each in knob.words})


TACTICS = record(lambda **words: options_from(words), {}, {each: _option(knob) for each, knob in OPTIONS.items()})


def _plan(
    steps: tuple[Step, ...] = (), ranks: tuple[tuple[Step, ...], ...] = (), expression: str = "", **values: Any
) -> WrittenPlan:
    """The plan; its ``expression`` is read by itself."""
    return WrittenPlan(steps=ranks[0] if ranks else steps, by_rank=ranks, **values)


def plan_form(limits: StepLimits) -> Form[WrittenPlan]:
    """A plan of one part: its engine, and steps of all ranks or of each."""

    def check(item: Item) -> None:
        members = item.members()
        if ("steps" in members) is ("ranks" in members):
            hint = "steps of rank r, the same for every rank, or a list of steps for each"
            raise item.fail("a plan has either 'steps' or 'ranks'", hint)
        if "steps" in members:
            return
        if "overrides" in members:
            raise members["overrides"].fail("where each rank has its own steps nothing is overridden")
        ranks = members["ranks"].items(MAX_RANKS)
        if len(ranks) != limits.ranks:
            message = f"steps of {len(ranks)} ranks are here, there are {limits.ranks}"
            raise members["ranks"].fail(message, code=Code.MGS524)
        total = sum(len(steps.items(MAX_STEPS)) for steps in ranks)
        if total > MAX_STEPS_OF_ALL:
            raise members["ranks"].fail(f"at most {MAX_STEPS_OF_ALL} steps are read, got {total}")

    step = _step(limits)
    steps = list_form(step, MAX_STEPS, report_each=True)
    override = record(Override, {"rank": whole(0, limits.ranks - 1), "step": step})
    either: JsonObject = {
        "oneOf": [{"required": ["steps"]}, {"required": ["ranks"], "not": {"required": ["overrides"]}}]
    }
    optional: dict[str, Form[Any]] = {
        "expression": TEXT,
        "tactics": TACTICS,
        "overlaps": FLAG,
        "steps": steps,
        "overrides": list_form(override, MAX_STEPS, report_each=True),
        "ranks": list_form(steps, MAX_RANKS, 1, report_each=True),
    }
    return record(_plan, {"engine": ENGINE}, optional, check=check, also=either)


_BYTES: Form[int] = Form(lambda item: item.number(0, 1 << 62), {"type": "integer", "minimum": 0})
PART = record(
    PartInFile,
    {"name": SHORT_TEXT, "op": SHORT_TEXT, "plan": whole(0, MAX_PARTS - 1)},
    {
        "layer": whole(1, MAX_LAYERS),
        "stream": whole(COLLECTIVES_STREAM, MAX_STREAMS - 1),
        "priority": _PRIORITY,
        "behind_kernels": FLAG,
        "staging": record(
            lambda bytes, until: (bytes, until), {"bytes": _BYTES, "until": list_form(SHORT_TEXT, MAX_PARTS)}
        ),
        "waits": list_form(
            record(
                PartWait,
                {"on": SHORT_TEXT, "what": word({each.name.lower(): each for each in Awaited})},
                {"kernels_only": FLAG},
            ),
            MAX_STEPS,
        ),
        "step_waits": list_form(record(StepWait, {"step": NAME, "on": SHORT_TEXT, "of": NAME}), MAX_WAITS),
    },
)
_HASH = Form(Item.any_text, {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"})


FILE: Form[JsonObject] = record(
    dict,
    {
        "schema": Form(Item.any_text, {"const": SCHEMA}),
        "scenario": unread(SCENARIO),
        "plans": list_form(unread(plan_form(StepLimits())), MAX_PARTS, 1),
        "parts": list_form(unread(PART), MAX_PARTS, 1),
    },
    {"expression": TEXT, "hash": _HASH, "sums_priority": _PRIORITY},
)


def plan_schema() -> JsonObject:
    """The schema as a JSON object."""
    return schema_of("A plan of Magus", FILE)
