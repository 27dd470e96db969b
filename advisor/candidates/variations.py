"""Variants of the fastest schedules, serial ones too: the same structure with other execution options, all together.

The ranking knows schedules with usual options alone. Which variants are worth a simulation, their estimates say, each
corrected by what the estimate of the schedule that is varied is off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from ...compiler.ir import (
    TICKS_PER_US,
    Choice,
    CopyProtocol,
    Direction,
    EngineKind,
    EngineMode,
    Kernels,
    LaunchMode,
    PeerOrder,
    Scenario,
    Wait,
)
from ...compiler.planning.build import build_schedule, reject_choice
from ...compiler.planning.expression import OPTIONS
from ..estimate.makespan import estimate_ticks
from .candidate import Candidate

# Overlapping schedules that are varied, and variants that are tried of each kind: serial or overlapping.
NUM_VARIED, NUM_TRIED = 2, 2
# Overlapping variants are tried if they may take this multiple of the fastest, serial ones if they may be faster.
MAX_RATIO = 1.02


def variants(scenario: Scenario, candidates: Sequence[Candidate]) -> list[Choice]:
    """Return variants of the fastest schedules that may be faster, and the best with each option that the file names.

    ``candidates`` are in the order of their times. Serial schedules are varied like those that overlap: a gain by a
    protocol beside a baseline without it would look like overlap.
    """
    simulated = [one for one in candidates if one.simulated_ticks is not None and one.choice is not None]
    overlapping = [one for one in simulated if not one.is_serial]
    direct = [one for one in simulated if one.is_serial and not one.is_library]
    # An estimate of usual options says how far the others are off; one of unusual options would be corrected twice.
    direct = [one for one in direct if one.has_usual_options] or direct
    by_sm = [one for one in direct if one.schedule.engine.kind is EngineKind.SM]
    known = {one.choice for one in candidates}
    found = _likely(scenario, overlapping[:NUM_VARIED], known, MAX_RATIO)
    found += _likely(scenario, list(dict.fromkeys([*direct[:1], *by_sm[:1]])), known, 1.0)
    in_graphs = (_in_graph(scenario, one.choice) for one in simulated if one.is_library)
    return list(dict.fromkeys([*found, *(form for form in in_graphs if form is not None and form not in known)]))


def _likely(
    scenario: Scenario, varied: Sequence[Candidate], known: set[Choice | None], max_ratio: float
) -> list[Choice]:
    """Return the new variants that are likely to be fast, and the best with each value that the file names."""
    predicted: dict[Choice, float] = {}
    for one in varied:
        new = [form for form in forms_of(scenario, one.choice) if form not in known]
        if new:
            off = one.best_us * TICKS_PER_US / estimate_ticks(scenario, one.schedule).makespan_ticks
            for form in new:
                estimate = estimate_ticks(scenario, build_schedule(scenario, form))
                predicted.setdefault(form, off * estimate.makespan_ticks)
    limit = max_ratio * TICKS_PER_US * min((one.best_us for one in varied), default=0.0)
    best = sorted(predicted, key=lambda form: predicted[form])
    named = [
        next((form for form in best if getattr(form.tactics, knob.field) is value), None)
        for word, knob in OPTIONS.items()
        for value in scenario.explore.values(word)
        if value is not knob.usual
    ]
    likely = [form for form in best if predicted[form] < limit][:NUM_TRIED]
    return [*likely, *(form for form in named if form is not None)]


def _in_graph(scenario: Scenario, library: Choice | None) -> Choice | None:
    """Return the library's schedule as a graph if the file asks for graphs: it has no other options."""
    if library is None or LaunchMode.GRAPH not in _launches(scenario, library):
        return None
    return replace(library, tactics=replace(library.tactics, launch=LaunchMode.GRAPH))


def _launches(scenario: Scenario, base: Choice) -> Sequence[LaunchMode]:
    has_graphs = scenario.gpu.sync.graph_launch_ticks is not None
    asked = scenario.explore.values("launch")
    return [mode for mode in asked if has_graphs or mode is not LaunchMode.GRAPH] or [base.tactics.launch]


def may_deadlock(choice: Choice) -> bool:
    """Whether a persistent kernel may hold the SMs that the copies it waits for need.

    Only a simulation shows whether it does, so that such plans are not searched.
    """
    return choice.engine.mode is EngineMode.SHARED and choice.tactics.kernel is Kernels.PERSISTENT


def forms_of(scenario: Scenario, base: Choice | None) -> Iterator[Choice]:
    """Yield ``base`` with all execution options that it may have, and in other orders of unequal peers.

    Of a knob that the ``explore`` block names, only the named values are tried. Graphs and monitors are not, unless it
    names them.
    """
    if base is None:
        return
    asked = scenario.explore.values
    directions = asked("transfer") or tuple(Direction)
    if base.engine.kind is not EngineKind.SM and scenario.explore.dominance:
        directions = (base.tactics.direction,)  # a get by a copy engine gains nothing
    protocols = asked("protocol") or tuple(CopyProtocol)
    kernels, waits = asked("kernel") or tuple(Kernels), asked("wait") or (Wait.EVENT, Wait.POLL)
    orders = asked("order") or (base.order, PeerOrder.LARGE_FIRST, PeerOrder.SMALL_FIRST)
    for direction, protocol, kernel, wait, launch, order in product(
        directions, protocols, kernels, waits, _launches(scenario, base), orders
    ):
        tactics = replace(base.tactics, direction=direction, protocol=protocol, kernel=kernel, wait=wait, launch=launch)
        sums = base.sums if kernel is Kernels.LAUNCHED else 1
        form = replace(base, tactics=tactics, sums=sums, order=order)
        if form != base and not may_deadlock(form) and reject_choice(scenario, form) is None:
            yield form
