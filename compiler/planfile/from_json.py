"""Read plans from JSON, ``magus-plan/1``; the input is not trusted.

This module checks the form, the scenario that the plan is for, and the hash. ``verify/check.py`` checks, as for any
plan, that every byte moves and that waits end.
"""

import json

from ..codes import Code
from ..ir import (
    PLAN_MODES,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    IndexRange,
    Override,
    Plan,
    Reach,
    Reduction,
    Region,
    Scenario,
    Step,
    TileGroup,
    Transfer,
)
from ..planning.execution import OPTIONS, options_from
from ..planning.knobs import words_of
from ..text.json_items import Item
from ..text.vocabulary import MAX_EXTENT, MAX_RANKS, MAX_STREAMS
from .fingerprint import fingerprint
from .to_json import GRAPH_SCHEMA, SCHEMA, plan_hash

MAX_STEPS = 4096
"""Steps of one rank."""
MAX_STEPS_OF_ALL = 1 << 15
"""Steps of all ranks together."""
MAX_ENGINES = 1 << 20
MAX_KERNELS = 2
"""Kernels of a workload."""
TRANSFER_KINDS = tuple(direction.value for direction in Direction)
STEP_KINDS = (*TRANSFER_KINDS, "tiles", "reduction")
SCENARIO_KEYS = ("ranks", "pattern", "moved", "gemm", "kernel", "then", "split", "loads", "experts")


def read_plan(scenario: Scenario, document: Item) -> Plan:
    """Read a plan for ``scenario``; ``build_schedule`` makes a Schedule of it.

    Raises
    ------
    Stopped
        If the document has another form or is for another scenario; its report has a diagnostic for each wrong step.
    """
    if document.members().get("schema", document).value == GRAPH_SCHEMA:
        raise document.fail(f"this is a plan of a graph, {scenario.workload.name} is none", "", Code.MGS524)
    entries = document.entries(
        ("schema", "scenario", "engine"), ("expression", "hash", "tactics", "overlaps", "steps", "overrides", "ranks")
    )
    if entries["schema"].value != SCHEMA:
        raise entries["schema"].fail(f"this release reads {SCHEMA}", f'"schema": "{SCHEMA}"')
    plan = read_body(scenario, document, entries)
    if "hash" in entries and entries["hash"].text() != plan_hash(scenario, plan):
        hint = "leave the key 'hash' out, or write the plan anew: magus plan --format json"
        raise entries["hash"].fail("this is not the hash of this plan, which was changed", hint, Code.MGS525)
    return plan


def read_body(scenario: Scenario, document: Item, entries: dict[str, Item]) -> Plan:
    """Read what ``plan_body`` writes, the ``entries`` of ``document``; errors are those of ``read_plan``."""
    if "expression" in entries:
        entries["expression"].any_text()
    _check_fit(scenario, entries["scenario"])
    return _Reader(scenario, _engine(entries["engine"])).plan(document, entries)


def _check_fit(scenario: Scenario, item: Item) -> None:
    ours_by_key, theirs_by_key = fingerprint(scenario), item.entries(("ranks", "pattern"), SCENARIO_KEYS[2:])
    for key in SCENARIO_KEYS:
        ours = json.dumps(ours_by_key.get(key), sort_keys=True)
        theirs = json.dumps(theirs_by_key[key].value if key in theirs_by_key else None, sort_keys=True)
        if ours != theirs:
            message = f"{key}: the plan is for {theirs[:80]}, {scenario.workload.name} has {ours[:80]}"
            raise item.fail(message, "a plan fits the workload and the number of GPUs it was made for", Code.MGS524)


def _engine(item: Item) -> EngineChoice:
    entries = item.entries(("kind", "count"), ("mode",))
    modes = tuple(mode.name.lower() for mode in PLAN_MODES)
    kind = EngineKind(entries["kind"].word(words_of(EngineKind)))
    mode = EngineMode[entries["mode"].word(modes).upper()] if "mode" in entries else EngineMode.OWN
    return EngineChoice(kind, entries["count"].number(1, MAX_ENGINES), mode)


def _tactics(item: Item) -> ExecutionOptions:
    entries = item.entries((), tuple(OPTIONS))
    return options_from({word: value.word(OPTIONS[word].words) for word, value in entries.items()})


class _Reader:
    """Reads the steps of one plan."""

    def __init__(self, scenario: Scenario, engine: EngineChoice) -> None:
        self._n, self._kernels, self._engine = scenario.num_ranks, scenario.workload.num_kernels, engine

    def plan(self, document: Item, entries: dict[str, Item]) -> Plan:
        if ("steps" in entries) is ("ranks" in entries):
            hint = "steps of rank r, the same for every rank, or a list of steps for each"
            raise document.fail("a plan has either 'steps' or 'ranks'", hint)
        if "ranks" in entries and "overrides" in entries:
            raise entries["overrides"].fail("where each rank has its own steps nothing is overridden")
        overlaps = entries["overlaps"].flag() if "overlaps" in entries else True
        tactics = _tactics(entries["tactics"]) if "tactics" in entries else ExecutionOptions()
        report, failures = document.origin.report, document.origin.report.num_failures
        overrides: tuple[Override, ...] = ()
        by_rank: tuple[tuple[Step, ...], ...] = ()
        if "ranks" in entries:
            by_rank = self._ranks(entries["ranks"])
            steps = by_rank[0]
        else:
            steps = self._steps(entries["steps"])
            overrides = self._overrides(entries["overrides"]) if "overrides" in entries else ()
        if report.num_failures > failures:
            raise report.stop()
        return Plan(self._engine, steps, overrides, tactics, by_rank, overlaps)

    def _ranks(self, item: Item) -> tuple[tuple[Step, ...], ...]:
        ranks = item.items(MAX_RANKS)
        if len(ranks) != self._n:
            message = f"steps of {len(ranks)} ranks are here, there are {self._n}"
            raise item.fail(message, code=Code.MGS524)
        total = sum(len(steps.items(MAX_STEPS)) for steps in ranks)
        if total > MAX_STEPS_OF_ALL:
            raise item.fail(f"at most {MAX_STEPS_OF_ALL} steps are read, got {total}")
        return tuple(self._steps(steps) for steps in ranks)

    def _steps(self, item: Item) -> tuple[Step, ...]:
        """Read the steps of a rank; report each one that is wrong."""
        steps: list[Step] = []
        for step in item.items(MAX_STEPS):
            with item.origin.report.attempt():
                steps.append(self._step(step))
        return tuple(steps)

    def _overrides(self, item: Item) -> tuple[Override, ...]:
        overrides: list[Override] = []
        for override in item.items(MAX_STEPS):
            with item.origin.report.attempt():
                entries = override.entries(("rank", "step"))
                overrides.append(Override(entries["rank"].number(0, self._n - 1), self._step(entries["step"])))
        return tuple(overrides)

    def _step(self, item: Item) -> Step:
        members = item.members()
        if "kind" not in members:
            raise item.fail("'kind' is missing", f"a step is one of {', '.join(STEP_KINDS)}")
        match members["kind"].word(STEP_KINDS):
            case "tiles":
                return self._tiles(item)
            case "reduction":
                return self._reduction(item)
            case word:
                return self._transfer(item, Direction(word))

    def _transfer(self, item: Item, direction: Direction) -> Transfer:
        entries = item.entries(("kind", "name", "region", "peer", "signal"), ("after", "lane", "reduce"))
        everyone = entries["peer"].value == "all"
        lane = entries["lane"].number(0, self._engine.count - 1) if "lane" in entries else None
        return Transfer(
            entries["name"].name(),
            direction,
            self._region(entries["region"]),
            0 if everyone else entries["peer"].number(1, self._n - 1),
            entries["signal"].name(),
            _names(entries),
            lane,
            "reduce" in entries and entries["reduce"].flag(),
            Reach.ALL if everyone else Reach.PEER,
        )

    def _tiles(self, item: Item) -> TileGroup:
        entries = item.entries(("kind", "name", "regions", "k"), ("after", "stream", "accumulate", "kernel"))
        regions = tuple(self._region(region) for region in entries["regions"].items(MAX_STEPS, least=1))
        accumulate = "accumulate" in entries and entries["accumulate"].flag()
        kernel = entries["kernel"].number(0, max(0, self._kernels - 1)) if "kernel" in entries else 0
        return TileGroup(
            entries["name"].name(), regions, _span(entries["k"]), _names(entries), _stream(entries), accumulate, kernel
        )

    def _reduction(self, item: Item) -> Reduction:
        entries = item.entries(("kind", "name", "region", "parts"), ("after", "stream"))
        parts = entries["parts"].number(2, self._n)
        return Reduction(
            entries["name"].name(), self._region(entries["region"]), parts, _names(entries), _stream(entries)
        )

    def _region(self, item: Item) -> Region:
        entries = item.entries(("owner", "rows", "cols"))
        return Region(entries["owner"].number(0, self._n - 1), _span(entries["rows"]), _span(entries["cols"]))


def _span(item: Item) -> IndexRange:
    ends = item.items(2, least=2)
    start, stop = (end.number(0, MAX_EXTENT) for end in ends)
    if start >= stop:
        raise item.fail(f"{start}:{stop} is empty", code=Code.MGS306)
    return IndexRange(start, stop)


def _names(entries: dict[str, Item]) -> tuple[str, ...]:
    return tuple(name.name() for name in entries["after"].items(MAX_STEPS)) if "after" in entries else ()


def _stream(entries: dict[str, Item]) -> int:
    return entries["stream"].number(0, MAX_STREAMS - 1) if "stream" in entries else 0
