"""The first place where schedules part, in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ....compiler.ir import TICKS_PER_US, Reduction, Region, Step, TileGroup, Transfer
from ....compiler.text.quantities import us_text
from ....simcore.figures.result import Interval
from ....simcore.shown_run import ShownRun

# Times are compared as they are shown.
SAME_TICKS = TICKS_PER_US // 20


@dataclass(frozen=True, slots=True)
class Act:
    """What a rank begins at a time: the step in words that do not depend on its name, and its name."""

    start_ticks: int
    doing: str
    name: str


@dataclass(frozen=True, slots=True)
class Parting:
    """Where schedules part: the time, and a sentence."""

    ticks: int
    sentence: str


def parting_of(names: Sequence[str], runs: Sequence[ShownRun]) -> Parting | None:
    """Return the first act of rank 0 in which schedules differ; None if they all do the same at the same times.

    ``names`` are what the sentence calls the schedules.
    """
    acts = [_acts(run) for run in runs]  # of layers that repeat from the shown one on
    for place in range(max(map(len, acts), default=0)):
        here = [each[place] if place < len(each) else None for each in acts]
        times = [act.start_ticks for act in here if act is not None]
        alike = len({act.doing if act is not None else "" for act in here}) == 1
        if not alike or max(times) - min(times) > SAME_TICKS:
            return Parting(min(times), _sentence(names, here, min(times)))
    return None


def _sentence(names: Sequence[str], here: Sequence[Act | None], ticks: int) -> str:
    said = [(_doing(act, ticks), name) for name, act in zip(names, here, strict=True)]
    said.sort(key=lambda pair: names.index(pair[1]))
    parts = [
        f"{' and '.join(name for _, name in group)} {'begin' if len(group) > 1 else 'begins'} {doing}"
        if doing
        else f"{' and '.join(name for _, name in group)} {'are' if len(group) > 1 else 'is'} done"
        for doing, group in ((doing, list(pairs)) for doing, pairs in groupby(said, key=lambda pair: pair[0]))
    ]
    when = "From the start" if ticks < SAME_TICKS else f"At {us_text(ticks / TICKS_PER_US)}"
    return f"{when} they differ: {'; '.join(parts)}."


def _doing(act: Act | None, ticks: int) -> str:
    """What is begun, and when if that is later than ``ticks``."""
    if act is None:
        return ""
    when = "" if act.start_ticks - ticks < SAME_TICKS else f" at {us_text(act.start_ticks / TICKS_PER_US)}"
    return f"{act.doing} ({act.name}){when}"


def _acts(run: ShownRun) -> list[Act]:
    """What rank 0 begins, in order of time; of what begins together, kernels first and near peers first."""
    first, _ = run.shown_span
    found = [
        (
            round((each.start_ticks - first) / SAME_TICKS),
            _order(run.step_of(0, each.name)),
            Act(each.start_ticks - first, _words(each, run.step_of(0, each.name)), each.name),
        )
        for each in run.result.timeline.of_rank(0)
        if each.start_ticks >= first
    ]
    return [act for _, _, act in sorted(found, key=lambda one: (one[0], one[1], one[2].name))]


def _order(step: Step | None) -> tuple[int, int]:
    match step:
        case TileGroup() | Reduction():
            return 0, 0
        case Transfer():
            return 1, step.peer
        case None:
            return 2, 0


def _words(interval: Interval, step: Step | None) -> str:
    match step:
        case Transfer():
            to = "all ranks" if not step.peer else f"rank r+{step.peer}"
            preposition = "to" if step.direction.value == "put" else "from"
            return f"a {step.direction.value} of {_size(step.region)} {preposition} {to}"
        case TileGroup():
            rows = sum(region.rows.size for region in step.regions)
            return f"a kernel of {rows} x {step.regions[0].cols.size}"
        case Reduction():
            return f"a sum of {step.num_parts} parts of {_size(step.region)}"
        case None:
            return f"{interval.kind.value} work"


def _size(region: Region) -> str:
    return f"{region.rows.size} x {region.cols.size}"
