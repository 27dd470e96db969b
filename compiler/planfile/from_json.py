"""Plans as JSON, ``magus-plan/1``, read and checked by hand: a file may come from anybody.

Here the form is checked, what the plan fits, and its hash. Whether it moves every byte and whether its waits can end is
checked as for any plan, in ``verify/check.py``.
"""

import json
from collections.abc import Iterator

from ..codes import Code
from ..ir import (
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
from .to_json import SCHEMA, plan_hash

MAX_STEPS = 4096
"""Of one rank."""
MAX_STEPS_OF_ALL = 1 << 15
MAX_ENGINES = 1 << 20
MAX_KERNELS = 2
"""Of a workload."""
TRANSFER_KINDS = tuple(direction.value for direction in Direction)
STEP_KINDS = (*TRANSFER_KINDS, "tiles", "reduction")
FITS = ("ranks", "pattern", "moved", "gemm", "kernel", "then", "split", "loads", "experts")


def read_plan(scenario: Scenario, document: Item) -> Plan:
    """Read a plan for ``scenario``; ``build_schedule`` makes a Schedule of it.

    Raises
    ------
    Stopped
        If the document has another form or is for another scenario; its report has a diagnostic for each wrong step.
    """
    said = document.entries(
        ("schema", "scenario", "engine"), ("expression", "hash", "tactics", "overlaps", "steps", "overrides", "ranks")
    )
    if said["schema"].value != SCHEMA:
        raise said["schema"].fail(f"this release reads {SCHEMA}", f'"schema": "{SCHEMA}"')
    if "expression" in said:
        said["expression"].any_text()
    _check_fit(scenario, said["scenario"])
    reader = _Reader(scenario, _engine(said["engine"]))
    plan = reader.plan(document, said)
    if "hash" in said and said["hash"].text() != plan_hash(scenario, plan):
        hint = "leave the key 'hash' out, or write the plan anew: magus plan --format json"
        raise said["hash"].fail("this is not the hash of this plan, which was changed", hint, Code.MGS525)
    return plan


def _check_fit(scenario: Scenario, item: Item) -> None:
    here, there = fingerprint(scenario), item.entries(("ranks", "pattern"), FITS[2:])
    for key in FITS:
        ours = json.dumps(here.get(key), sort_keys=True)
        theirs = json.dumps(there[key].value if key in there else None, sort_keys=True)
        if ours != theirs:
            message = f"{key}: the plan is for {theirs[:80]}, {scenario.workload.name} has {ours[:80]}"
            raise item.fail(message, "a plan fits the workload and the number of GPUs it was made for", Code.MGS524)


def _engine(item: Item) -> EngineChoice:
    said = item.entries(("kind", "count"), ("mode",))
    modes = tuple(mode.name.lower() for mode in EngineMode)
    kind = EngineKind(said["kind"].word(words_of(EngineKind)))
    mode = EngineMode[said["mode"].word(modes).upper()] if "mode" in said else EngineMode.OWN
    return EngineChoice(kind, said["count"].number(1, MAX_ENGINES), mode)


def _tactics(item: Item) -> ExecutionOptions:
    said = item.entries((), tuple(OPTIONS))
    return options_from({word: value.word(OPTIONS[word].words) for word, value in said.items()})


class _Reader:
    """Reads the steps of one plan."""

    def __init__(self, scenario: Scenario, engine: EngineChoice) -> None:
        self._n, self._kernels, self._engine = scenario.num_ranks, scenario.workload.num_kernels, engine

    def plan(self, document: Item, said: dict[str, Item]) -> Plan:
        if ("steps" in said) is ("ranks" in said):
            hint = "steps of rank r, the same for every rank, or a list of steps for each"
            raise document.fail("a plan has either 'steps' or 'ranks'", hint)
        if "ranks" in said and "overrides" in said:
            raise said["overrides"].fail("where each rank has its own steps nothing is overridden")
        overlaps = said["overlaps"].flag() if "overlaps" in said else True
        tactics = _tactics(said["tactics"]) if "tactics" in said else ExecutionOptions()
        report, failures = document.origin.report, document.origin.report.num_failures
        overrides: tuple[Override, ...] = ()
        by_rank: tuple[tuple[Step, ...], ...] = ()
        if "ranks" in said:
            by_rank = self._ranks(said["ranks"])
            steps = by_rank[0]
        else:
            steps = self._steps(said["steps"])
            overrides = self._overrides(said["overrides"]) if "overrides" in said else ()
        if report.num_failures > failures:
            raise report.stop()
        return Plan(self._engine, steps, overrides, tactics, by_rank, overlaps)

    def _ranks(self, item: Item) -> tuple[tuple[Step, ...], ...]:
        ranks = item.items(MAX_RANKS)
        if len(ranks) != self._n:
            message = f"steps of {len(ranks)} ranks are here, there are {self._n}"
            raise item.fail(message, code=Code.MGS524)
        total = sum(len(each.items(MAX_STEPS)) for each in ranks)
        if total > MAX_STEPS_OF_ALL:
            raise item.fail(f"at most {MAX_STEPS_OF_ALL} steps are read, got {total}")
        return tuple(self._steps(each) for each in ranks)

    def _steps(self, item: Item) -> tuple[Step, ...]:
        """The steps of a rank; each that is wrong is told."""
        found: list[Step] = []
        for each in item.items(MAX_STEPS):
            with item.origin.report.attempt():
                found.append(self._step(each))
        return tuple(found)

    def _overrides(self, item: Item) -> tuple[Override, ...]:
        found: list[Override] = []
        for each in item.items(MAX_STEPS):
            with item.origin.report.attempt():
                said = each.entries(("rank", "step"))
                found.append(Override(said["rank"].number(0, self._n - 1), self._step(said["step"])))
        return tuple(found)

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
        said = item.entries(("kind", "name", "region", "peer", "signal"), ("after", "lane", "reduce"))
        everyone = said["peer"].value == "all"
        lane = said["lane"].number(0, self._engine.count - 1) if "lane" in said else None
        return Transfer(
            said["name"].name(),
            direction,
            self._region(said["region"]),
            0 if everyone else said["peer"].number(1, self._n - 1),
            said["signal"].name(),
            _names(said),
            lane,
            "reduce" in said and said["reduce"].flag(),
            Reach.ALL if everyone else Reach.PEER,
        )

    def _tiles(self, item: Item) -> TileGroup:
        said = item.entries(("kind", "name", "regions", "k"), ("after", "stream", "accumulate", "kernel"))
        regions = tuple(self._region(each) for each in said["regions"].items(MAX_STEPS, least=1))
        accumulate = "accumulate" in said and said["accumulate"].flag()
        kernel = said["kernel"].number(0, max(0, self._kernels - 1)) if "kernel" in said else 0
        return TileGroup(
            said["name"].name(), regions, _span(said["k"]), _names(said), _stream(said), accumulate, kernel
        )

    def _reduction(self, item: Item) -> Reduction:
        said = item.entries(("kind", "name", "region", "parts"), ("after", "stream"))
        parts = said["parts"].number(2, self._n)
        return Reduction(said["name"].name(), self._region(said["region"]), parts, _names(said), _stream(said))

    def _region(self, item: Item) -> Region:
        said = item.entries(("owner", "rows", "cols"))
        return Region(said["owner"].number(0, self._n - 1), _span(said["rows"]), _span(said["cols"]))


def _span(item: Item) -> IndexRange:
    ends = item.items(2, least=2)
    start, stop = (end.number(0, MAX_EXTENT) for end in ends)
    if start >= stop:
        raise item.fail(f"{start}:{stop} is empty", code=Code.MGS306)
    return IndexRange(start, stop)


def _names(said: dict[str, Item]) -> tuple[str, ...]:
    return tuple(_each_name(said["after"])) if "after" in said else ()


def _each_name(item: Item) -> Iterator[str]:
    return (each.name() for each in item.items(MAX_STEPS))


def _stream(said: dict[str, Item]) -> int:
    return said["stream"].number(0, MAX_STREAMS - 1) if "stream" in said else 0
