"""Would another number in the hardware profile give another answer? Schedules of the advice, with each number changed.

Every schedule keeps its plan. Its time with a number changed is its known time times the change of its estimate; what
that says about the answer is then simulated: the answer, and what would be faster.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any

from ...compiler.ir import TICKS_PER_US, Cancelled, Gpu, Link, OpCase, Scenario, Switch, System
from ...compiler.planning.knobs.library import library_on
from ..answer.rule import Finalists, finalists, overlap_pays
from ..candidates.candidate import Candidate, baseline_of, by_time
from ..candidates.predicted import library_us
from ..candidates.sensitivity import MAX_LOSS, ChangedNumber, Sensitivity
from ..candidates.shortlist import simulated_ranks
from ..estimate.makespan import makespans
from ..work.workers import SimulationJob, Workers

# 10 % lower and higher: about what measurements of one GPU differ by, and profiles are off by.
TEN_PERCENT = (0.9, 1.1)
# Costs of commands are doubled too: driver, host and other processes change them by as much.
DOUBLED = 2.0

Device = Gpu | Link | Switch


@dataclass(frozen=True, slots=True)
class HardwareNumber:
    """A number of a device of a system, or several that one cause changes together.

    ``name`` is its path in the language, without the name of the GPU. ``paths`` are all that change, with that name,
    and ``attributes`` lead from ``device`` to their values. ``factors`` are what they are multiplied by, in turn.
    """

    name: str
    device: Device
    paths: tuple[str, ...]
    attributes: tuple[str, ...]
    factors: tuple[float, ...] = TEN_PERCENT


def _library(word: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the library's numbers: of the protocols all that end in ``word``, and its ``own``."""
    protocols = ("ll", "ll128", "simple")
    blocks = ("collectives", "collectives.all_to_all")
    attribute = {"start": "start_ticks", "step": "step_ticks", "bandwidth": "bytes_per_s"}[word]
    of_protocols = {f"{protocol}_{word}": f"{protocol}.{attribute}" for protocol in protocols}
    return {f"{block}.{path}": f"{block}.{each}" for block in blocks for path, each in {**own, **of_protocols}.items()}


_LAUNCH = {"launch.kernel": "launch.kernel_ticks", "gemm.start": "gemm.start_ticks"}
_EVENT = {"launch.event": "launch.event_ticks"}
# Numbers of a GPU by name: the attribute of ``Gpu`` for each path that changes.
_OF_GPU: Mapping[str, Mapping[str, str]] = {
    "peak": {"peak": "peak_flops"},
    "hbm.bandwidth": {"hbm.bandwidth": "hbm.peak_bytes_per_s", "hbm.achieved": "hbm.achieved_bytes_per_s"},
    "hbm.latency": {"hbm.latency": "hbm.latency_ticks"},
    "l2.bandwidth": {"l2.bandwidth": "l2.bytes_per_s"},
    "mall.bandwidth": {"mall.bandwidth": "mall.bytes_per_s"},
    "noc.copy_bandwidth": {"noc.copy_bandwidth": "noc.copy_bytes_per_s"},
    "gemm.tile": {"gemm.tile": "gemm.tile_ticks"},
    "gemm.k_step": {"gemm.k_step": "gemm.k_step_ticks"},
    "launch.kernel": _LAUNCH,
    "launch.event": _EVENT,
    "launch": {**_LAUNCH, **_EVENT},
    "sync.graph_launch": {"sync.graph_launch": "sync.graph_launch_ticks"},
    "sync.poll_interval": {"sync.poll_interval": "sync.poll_interval_ticks"},
    "sync.monitor_arm": {"sync.monitor_arm": "sync.monitor_arm_ticks"},
    "sync.monitor_wake": {"sync.monitor_wake": "sync.monitor_wake_ticks"},
    "dma.bandwidth": {"dma.bandwidth": "dma.bytes_per_s"},
    "dma.setup": {"dma.setup": "dma.setup_ticks"},
    "dma.issue_interval": {"dma.issue_interval": "dma.issue_interval_ticks"},
    "dma.packet_cost": {"dma.packet_cost": "dma.packet_ticks"},
    "dma.prelaunch": {"dma.prelaunch": "dma.prelaunch_ticks"},
    "sm_copy.bandwidth": {"sm_copy.bandwidth": "sm_copy.bytes_per_s"},
    "sm_copy.setup": {"sm_copy.setup": "sm_copy.setup_ticks"},
    "collectives.start": {
        **_library("start", {"start": "start_ticks"}),
        **_library("step", {}),
        "collectives.nvls.start": "collectives.nvls.start_ticks",
    },
    "collectives.bandwidth": {
        **_library("bandwidth", {"own_bandwidth": "own_bytes_per_s"}),
        "collectives.nvls.bandwidth": "collectives.nvls.bytes_per_s",
    },
}
# A launch and an event are one call of the host each: what doubles one doubles the other.
_FACTORS: Mapping[str, tuple[float, ...]] = {
    "launch": (DOUBLED,),
    **dict.fromkeys(
        ("sync.graph_launch", "dma.setup", "dma.issue_interval", "dma.prelaunch", "sm_copy.setup"),
        (*TEN_PERCENT, DOUBLED),
    ),
}


def hardware_numbers(system: System) -> tuple[HardwareNumber, ...]:
    """Return the numbers that ``system`` has: those of the GPU, of each kind of link, and of the switch."""
    return (*_of_gpu(system.gpu), *_of_fabric(system))


def _of_gpu(gpu: Gpu) -> Iterator[HardwareNumber]:
    """Yield the numbers of ``gpu``; not those that are 0, or that its profile does not have."""
    for name, attributes in _OF_GPU.items():
        known = {path: attribute for path, attribute in attributes.items() if _value(gpu, attribute)}
        if known:
            paths = tuple(f"{gpu.name}.{path}" for path in known)
            yield HardwareNumber(name, gpu, paths, tuple(known.values()), _FACTORS.get(name, TEN_PERCENT))


def _of_fabric(system: System) -> Iterator[HardwareNumber]:
    def number(device: Link | Switch, word: str, attribute: str) -> HardwareNumber:
        path = f"{device.name}.{word}"
        return HardwareNumber(path, device, (path,), (attribute,))

    for link in system.fabric.links:
        yield number(link, "achieved", "achieved_bytes_per_s")
        yield number(link, "latency", "latency_ticks")
    switch = system.fabric.switch
    if switch is not None:
        yield number(switch, "bandwidth", "bytes_per_s")
        yield number(switch, "latency", "latency_ticks")


def _value(device: Device, attribute: str) -> Any:
    """Return the value to which ``attribute`` leads, None where a part of the profile is missing."""
    return reduce(lambda part, name: part and getattr(part, name), attribute.split("."), device)


def with_number(scenario: OpCase, number: HardwareNumber, factor: float) -> OpCase:
    """Return ``scenario`` with ``number``, one of its own, multiplied by ``factor``."""
    system, device = scenario.system, number.device
    for attribute in number.attributes:
        device = _multiplied(device, attribute, factor)
    if isinstance(device, Gpu):
        return replace(scenario, system=replace(system, gpu=device))
    gpu, fabric = system.gpu, system.fabric
    library = library_on(system)
    if library is not None:  # its times were measured: they stay as they are
        gpu = replace(gpu, collectives=replace(library, link_bytes_per_s=None, link_latency_ticks=None))
    if isinstance(device, Switch):
        fabric = replace(fabric, switch=device)
    else:
        link, layout = (_with_link(part, number.device, device) for part in (fabric.link, fabric.layout))
        fabric = replace(fabric, link=link, layout=layout)
    return replace(scenario, system=replace(system, gpu=gpu, fabric=fabric))


def _multiplied(part: Any, attribute: str, factor: float) -> Any:
    """Return ``part`` with the value of ``attribute`` multiplied: a whole number, or one for each element type."""
    name, _, rest = attribute.partition(".")
    value = getattr(part, name)
    if rest:
        value = _multiplied(value, rest, factor)
    elif isinstance(value, tuple):
        value = tuple((dtype, round(rate * factor)) for dtype, rate in value)
    else:
        value = round(value * factor)
    return replace(part, **{name: value})


def _with_link(part: Any, old: Device, new: Link) -> Any:
    """Return a part of a fabric with the link ``new`` wherever it has ``old``."""
    if isinstance(part, Link):
        return new if part == old else part
    if isinstance(part, tuple):
        return tuple(_with_link(each, old, new) for each in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: _with_link(getattr(part, field.name), old, new) for field in fields(part)})
    return part


# Schedules that are compared: the fastest, slower ones with fewer steps, and serial ones.
NUM_FASTEST, NUM_SHORTER, NUM_SERIAL = 8, 4, 3
# Steps of all ranks that estimates follow in the whole stage, some seconds; so long plans of many ranks are fewer, but
# at least these.
MAX_STEPS, MIN_COMPARED = 150_000, 3
# Runs of the whole stage, fewer than those of the advice.
MAX_RUNS = 32
# An answer that falls behind by less than MAX_LOSS less this is taken to hold. Of nine examples with every number
# changed, estimates of two schedules within 5 % of each other were off by more in 1 of 100, and no change was missed.
MARGIN = 0.0075

Cell = tuple[int, int]  # the number of a change, and of a schedule


def sensitivity_of(
    scenario: OpCase,
    candidates: Sequence[Candidate],
    confirmed: Sequence[Candidate],
    answer: str,
    pool: Workers | None,
) -> Sensitivity | None:
    """Return how the ``answer``, the expression of a candidate, depends on hardware numbers; None without another one.

    ``confirmed`` are the candidates with their final times; those of ``candidates`` are of the shortlist, in whose
    granularity schedules are simulated again. Without a ``pool`` nothing is simulated.

    Raises
    ------
    Cancelled
        If the caller asked to stop.
    """
    num_changes = sum(len(number.factors) for number in hardware_numbers(scenario.system))
    compared = _affordable(scenario, _compared(candidates, answer), MAX_STEPS // num_changes)
    if len(compared) < 2:
        return None
    simulated = all(one.simulated_ticks is not None for one in compared)
    final_us = {one.expression: one.best_us for one in (confirmed if simulated else candidates)}
    trials = _Trials.of(scenario, compared, [final_us[one.expression] for one in compared])
    return trials.settled(pool if simulated else None)


def _compared(candidates: Sequence[Candidate], answer: str) -> tuple[Candidate, ...]:
    """Return the schedules that may be the fastest with a number changed, the answer and the baseline first.

    Others are the fastest, and of each structure slower ones with fewer steps: where commands cost more, they gain.
    """
    timed = [one for one in candidates if one.simulated_ticks is not None] or list(candidates)
    timed = by_time([one for one in timed if math.isfinite(one.best_us)])
    first = [one for one in timed if one.expression == answer]
    serial, others = ([one for one in timed if one.is_serial is kind] for kind in (True, False))
    baseline = [baseline_of(serial)] if serial else []
    slower = [one for one in _shorter(others) if one not in others[:NUM_FASTEST]]
    chosen = (*first, *baseline, *others[:NUM_FASTEST], *serial[:NUM_SERIAL], *slower[:NUM_SHORTER])
    return tuple({one.expression: one for one in chosen}.values()) if first else ()


def _affordable(scenario: OpCase, compared: Sequence[Candidate], max_steps: int) -> tuple[Candidate, ...]:
    """Return the first of the schedules whose steps together, on all ranks that are followed, are ``max_steps``."""
    steps = accumulate(len(one.schedule.steps) * simulated_ranks(scenario, one.schedule) for one in compared)
    num_affordable = sum(total <= max_steps for total in steps)
    return tuple(compared[: max(MIN_COMPARED, num_affordable)])


def _shorter(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that have fewer steps than all before them that differ in pieces and engines alone."""
    fewest: dict[object, int] = {}
    for one in candidates:
        structure, steps = _structure(one), len(one.schedule.steps)
        if steps < fewest.get(structure, steps + 1):
            fewest[structure] = steps
            yield one


def _structure(candidate: Candidate) -> object:
    """Return what a candidate has in common with those of other pieces, and with more or fewer engines."""
    choice = candidate.choice
    if choice is None:
        return candidate.expression
    return choice.template, choice.algorithm, choice.engine.kind, choice.tactics


def _estimated_us(scenario: OpCase, compared: Sequence[Candidate]) -> list[float]:
    """Return estimates of the compared schedules; of the library the closed form."""
    modelled = (one.schedule for one in compared if not one.is_library)
    ticks = makespans(scenario, modelled)
    return [library_us(scenario) if one.is_library else next(ticks) / TICKS_PER_US for one in compared]


@dataclass(slots=True)
class _Trial:
    """The scenario with one number changed, and the times of the compared schedules there."""

    number: HardwareNumber
    factor: float
    scenario: OpCase
    us: list[float]
    simulated: list[bool]


@dataclass(slots=True)
class _Trials:
    """All trials of the schedules ``compared``, which take ``us`` with the numbers as they are.

    ``tried`` are the cells whose simulation was begun, with or without success.
    """

    scenario: OpCase
    compared: tuple[Candidate, ...]
    us: Sequence[float]
    trials: list[_Trial]
    tried: set[Cell] = field(default_factory=set)

    @classmethod
    def of(cls, scenario: OpCase, compared: tuple[Candidate, ...], us: Sequence[float]) -> "_Trials":
        """Return the trials of all numbers, estimated."""
        before = _estimated_us(scenario, compared)
        trials = []
        for number in hardware_numbers(scenario.system):
            for factor in number.factors:
                changed = with_number(scenario, number, factor)
                after = _estimated_us(changed, compared)
                there = [each * b / a for each, a, b in zip(us, before, after, strict=True)]
                trials.append(_Trial(number, factor, changed, there, [False] * len(there)))
        return cls(scenario, compared, us, trials)

    def settled(self, pool: Workers | None) -> Sensitivity:
        """Return the table once what it claims was simulated, as far as the number of runs allows."""
        found = self._table(simulated=pool is not None)
        while pool is not None and (cells := self._unsettled(found)):
            self._simulate(pool, cells)
            found = self._table(simulated=True)
        return found

    def _table(self, *, simulated: bool) -> Sensitivity:
        changes = (
            ChangedNumber(
                trial.number.name,
                trial.number.paths,
                trial.factor,
                tuple(trial.us),
                tuple(trial.simulated),
                self._pays(trial.scenario, trial.us),
            )
            for trial in self.trials
        )
        expressions = tuple(one.expression for one in self.compared)
        pays = self._pays(self.scenario, self.us)
        return Sensitivity(expressions, tuple(self.us), pays, tuple(changes), simulated)

    def _pays(self, scenario: OpCase, us: Sequence[float]) -> bool:
        """Whether overlap pays with these times; in a lone collective there is nothing to overlap."""
        return not scenario.is_algorithm_choice and overlap_pays(
            Scenario.of_one(scenario), self._finalists(scenario, us)
        )

    def _finalists(self, scenario: OpCase, us: Sequence[float]) -> Finalists:
        """Return the best other schedule and the baseline with these times."""
        timed = (
            replace(one, simulated_ticks=round(each * TICKS_PER_US))
            for one, each in zip(self.compared, us, strict=True)
        )
        return finalists(Scenario.of_one(scenario), by_time(list(timed)))

    def _unsettled(self, found: Sensitivity) -> list[Cell]:
        """Return the cells to simulate next: those on which a claim rests, as many as the number of runs allows."""
        cells = dict.fromkeys(cell for cell in self._claims(found) if cell not in self.tried)
        return list(cells)[: MAX_RUNS - len(self.tried)]

    def _claims(self, found: Sensitivity) -> Iterator[Cell]:
        """Yield the cells on which a claim rests, the most important first; some twice."""
        robust = found.robust
        if robust is not None:
            for change in filter(None, (robust.answer_worst, robust.worst)):
                row = found.changes.index(change)
                yield from ((row, schedule) for schedule in (0, change.fastest, robust.schedule))
        numbers = {expression: number for number, expression in enumerate(found.schedules)}
        for row in sorted(range(len(self.trials)), key=lambda row: -found.added_loss(found.changes[row])):
            change, trial = found.changes[row], self.trials[row]
            if found.added_loss(change) > MAX_LOSS - MARGIN:
                yield from ((row, 0), (row, change.fastest))
            if change in found.flips:
                yield from ((row, numbers[one.expression]) for one in self._finalists(trial.scenario, trial.us))

    def _simulate(self, pool: Workers, cells: Sequence[Cell]) -> None:
        """Simulate ``cells``; one without a result keeps its estimate."""
        jobs = []
        for row, schedule in cells:
            one = self.compared[schedule]
            assert one.unit_bytes is not None, "where schedules are simulated again, all were simulated before"
            jobs.append(SimulationJob(self.trials[row].scenario, one.schedule, one.unit_bytes))
        results = pool.run(jobs)
        if pool.stopped:
            raise Cancelled
        self.tried.update(cells)
        for (row, schedule), result in zip(cells, results, strict=True):
            before_ticks, trial = self.compared[schedule].simulated_ticks, self.trials[row]
            if result is not None and before_ticks is not None:
                trial.us[schedule] = self.us[schedule] * result.makespan_ticks / before_ticks
                trial.simulated[schedule] = True
