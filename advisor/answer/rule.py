"""The rule of every answer: what is compared with what, which schedule wins, and what its gain promises."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...compiler.ir import TICKS_PER_US, EngineKind, OpMode, Scenario
from ...compiler.planning.plan import in_layer, own_name
from ...compiler.resolve.expect.expectation import Verdict
from ...simcore import Result
from ...simcore.kernels.dispatch import whole_works
from ...simcore.simulate_layers import SHOWN_LAYER
from ..candidates.candidate import MIN_LEAD, Candidate, baseline_of
from ..candidates.shortlist import answered_by_runs
from ..implementations.offers import Offers
from ..implementations.predict import CALL_US, MIN_GAIN, Promise, kernel_promise, kernel_us

Finalists = tuple[Candidate, Candidate]  # the best other one, the baseline

NOT_MEASURED = "whole layers were not measured"
KERNELS_LOSE = "no kernel that is known for {} is predicted to gain"
LIBRARY_UNKNOWN = "what the library takes on {} was not measured"


def finalists(scenario: Scenario, candidates: Sequence[Candidate]) -> Finalists:
    """Return (the simplest of the fastest others, the baseline); the baseline twice if there is nothing else.

    Only schedules that beat the baseline by more than the profile resolves compete by simplicity. If there are none,
    the fastest that overlaps is returned, to explain why it is not worth it. Two kinds never compete:
    kernels side by side, to which no profile is fitted, and what the file does not explore.
    """
    usable = [one for one in candidates if not one.side_by_side and not one.is_outside]
    serial = baseline_of(usable)
    others = [candidate for candidate in usable if candidate.expression != serial.expression]
    timed = _timed(others)
    known = [candidate for candidate in timed if math.isfinite(candidate.best_us)]
    worth = _worth(scenario, serial, known)
    if worth:
        return _simplest(scenario, worth), serial
    alone = scenario.is_algorithm_choice
    return next((candidate for candidate in timed if alone or not candidate.is_serial), serial), serial


def _timed(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The simulated ones; all where a stop left none that overlaps among them: then predictions compete."""
    if all(candidate.is_serial for candidate in candidates):
        return [candidate for candidate in candidates if not candidate.is_estimate] or candidates
    return answered_by_runs(candidates) or candidates


def _simplest(scenario: Scenario, candidates: Sequence[Candidate]) -> Candidate:
    """The simplest of those that the profile cannot tell from the fastest; of equally simple ones the fastest."""
    fastest, resolution = min(candidates, key=lambda each: each.best_us), max(MIN_LEAD, scenario.resolution)
    near = [each for each in candidates if ratio_of(scenario, each, fastest) < 1 + resolution]
    return min(near, key=lambda each: (each.complexity, each.best_us, each.expression))


def ratio_of(scenario: Scenario, one: Candidate, other: Candidate) -> float:
    """Return the time of ``one`` over that of ``other``, both without what they do alike."""
    alike = alike_us(scenario, one, other)
    return (one.best_us - alike) / (other.best_us - alike)


def alike_us(scenario: Scenario, one: Candidate, other: Candidate) -> float:
    """Return the time in us, of all layers, of what two schedules of several ops do alike; 0 where it is not known.

    These are kernels without a collective, whole or in batches, and ops that are carried out in the same way where in
    both schedules one op follows the other. Beside copies a kernel takes longer: the shorter time of both counts.
    """
    results = [each.result for each in (one, other) if each.several is not None and each.result is not None]
    if one.several is None or other.several is None or not results:
        return 0.0
    times, ticks = [_times_of(result) for result in results], 0
    modes = [{mode.op: mode for mode in each.joint.modes} for each in (one, other)]
    chained_ops = {*one.joint.chained, *other.joint.chained}
    in_turn = one.is_in_turn and other.is_in_turn and one.joint.batches == other.joint.batches
    for case in scenario.cases:
        known = [each[case.name] for each in times if case.name in each]
        if not known or case.name in chained_ops:
            continue
        same = modes[0].get(case.name, OpMode(case.name)) == modes[1].get(case.name, OpMode(case.name))
        if case.shape.moved is None:
            ticks += min(compute for compute, _ in known)
        elif same and in_turn:
            ticks += min(makespan for _, makespan in known)
    least = min(one.best_us, other.best_us)
    us = ticks * scenario.num_layers / TICKS_PER_US
    return us if us < least else 0.0


def _times_of(result: Result) -> dict[str, tuple[int, int]]:
    """How long the kernels of each op run, and the op, of all batches in a layer with neighbours."""
    layer, times = min(SHOWN_LAYER, result.num_simulated), dict[str, tuple[int, int]]()
    for op in result.ops:
        batch = own_name(op.name)
        if op.name == in_layer(batch, layer):
            compute, makespan = times.get(own := batch.partition("[")[0], (0, 0))
            times[own] = compute + op.compute_ticks, makespan + op.makespan_ticks
    return times


def is_worth_it(scenario: Scenario, serial: Candidate, candidate: Candidate) -> bool:
    """Whether ``candidate`` gains over ``serial`` at least ``MIN_GAIN``, and more than the profile resolves.

    Of the library it resolves no less than the error of its collectives. The resolution is that of what changes.
    """
    return bool(_worth(scenario, serial, (candidate,)))


def _worth(scenario: Scenario, serial: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those of ``candidates`` that are."""
    library = scenario.gpu.collectives if serial.is_library else None
    error = 0.0 if library is None else float(library.error)
    clear = 1 + max(MIN_GAIN, scenario.resolution, error)
    faster = [one for one in candidates if serial.best_us >= one.best_us * (1 + MIN_GAIN)]
    return [one for one in faster if ratio_of(scenario, serial, one) >= clear]


def recommended_of(scenario: Scenario, finals: Finalists) -> Candidate:
    """Return the best other schedule if it is worth it, else the baseline."""
    best, serial = finals
    return best if best is not serial and is_worth_it(scenario, serial, best) else serial


def overlap_pays(scenario: Scenario, finals: Finalists) -> bool:
    """Whether the best other schedule overlaps and is worth it."""
    best, serial = finals
    return not best.is_serial and is_worth_it(scenario, serial, best)


def promise_of(
    scenario: Scenario,
    candidates: Sequence[Candidate],
    serial: Candidate,
    recommended: Candidate,
    offers: Offers | None = None,
) -> Promise | None:
    """Return what the gain of ``recommended`` promises; None for the baseline and for a lone collective.

    The estimate of what nobody proposed is taken to be no better than those of proposals. Without the time of a library
    there is nothing that was measured to gain over. Of several ops one after the other the error is that of the ops
    that change; others were not measured. Where ``offers`` has kernels for the only op that moves data, and none gains,
    nothing says that another one would, and the interval reaches down to the fastest of these.
    """
    if recommended.expression == serial.expression or scenario.is_algorithm_choice:
        return None
    flops = max((case.shape.gemm.flops for case in scenario.moving if case.shape.gemm is not None), default=0)
    calls, alike = len(scenario.moving) * scenario.num_layers, alike_us(scenario, serial, recommended)
    us = kernel_us(recommended.best_us, flops, calls, alike)
    speedup, in_graph = (serial.best_us + calls * CALL_US) / us, serial.best_us / (us - calls * CALL_US)
    estimated = recommended.is_estimate or serial.is_estimate
    known = [recommended.gain_error] if recommended.gain_error else [one.gain_error or 0.0 for one in candidates]
    errors = (scenario.profile_error, _library_error(scenario, serial, alike), max(known) if estimated else 0.0)
    shortest_us = min(_times_us(scenario, recommended), default=recommended.best_us) + CALL_US
    promise = kernel_promise(speedup, shortest_us, scenario.resolution, errors, in_graph)
    promise = replace(promise, slower=_unknown_contention(scenario, serial, recommended, alike))
    if not serial.is_library:
        promise = replace(promise, outside=promise.outside or LIBRARY_UNKNOWN.format(scenario.gpu.name))
    best = offers.best_if_none_gains if len(scenario.moving) == 1 and offers is not None else None
    if best is not None:
        lose = KERNELS_LOSE.format("this" if best.outside else "such sizes")
        promise = replace(promise, outside=promise.outside or lose, known=best.least)
    if recommended.several is None:
        return promise
    if not recommended.is_in_turn:
        return replace(promise, outside=promise.outside or NOT_MEASURED)
    share = 1 - alike / recommended.best_us
    return replace(promise, error=None if promise.error is None else promise.error * share)


def _unknown_contention(scenario: Scenario, serial: Candidate, recommended: Candidate, alike: float) -> float:
    """How much longer ``recommended`` may take because GEMMs beside copies were not measured, see ``Beside``.

    They run beside copies no longer than these take: what ``serial`` takes beyond its kernels.
    """
    beside, cases = scenario.gpu.beside, [case for case in scenario.moving if case.shape.gemm is not None]
    if beside is None or recommended.is_serial or not cases:
        return 0.0
    most = max(beside.sm if kind is EngineKind.SM else beside.dma for kind in recommended.engines or EngineKind)
    us = recommended.best_us - alike
    if recommended.several is None:
        us = min(us, _moving_us(scenario, serial))
    return float(most) * us / recommended.best_us


def _library_error(scenario: Scenario, serial: Candidate, alike: float) -> float:
    """How far the time by the library may be off where its collectives were not measured by size on this GPU."""
    library = scenario.gpu.collectives
    if library is None or library.validated or not serial.is_library:
        return 0.0
    us = serial.best_us - alike if serial.several is not None else _moving_us(scenario, serial)
    return float(library.error) * us / serial.best_us


def _moving_us(scenario: Scenario, serial: Candidate) -> float:
    """What the library of one op takes beyond its kernels."""
    works = (work for case in scenario.moving for work in whole_works(case))
    return max(0.0, serial.best_us - sum(work.alone_ticks for work in works) / TICKS_PER_US)


def _times_us(scenario: Scenario, candidate: Candidate) -> Iterator[float]:
    """The times of ops with a collective, where they are known."""
    if candidate.several is None or candidate.result is None:
        return
    result = candidate.result
    layer = min(SHOWN_LAYER, result.num_simulated)
    names = {in_layer(case.name, layer) for case in scenario.moving}
    yield from (op.makespan_ticks / TICKS_PER_US for op in result.ops if op.name in names)


def verdict_of(scenario: Scenario, recommended: Candidate, promise: Promise | None) -> Verdict:
    """Return the verdict: a gain beyond the error pays by overlap, or by another schedule in which nothing overlaps.

    Of a collective alone it is whether to keep what the library chooses.
    """
    if scenario.is_algorithm_choice:
        return Verdict.LIBRARY if recommended.is_library else Verdict.USE
    if promise is None or promise.verdict is Verdict.OVERLAP:
        return Verdict.SERIAL if promise is None or recommended.is_serial else Verdict.OVERLAP
    # What gains as simulated and not as a kernel may gain where nothing is called from the host.
    return Verdict.WORTH_TRYING


def ties_of(scenario: Scenario, candidates: Sequence[Candidate], recommended: Candidate) -> tuple[str, ...]:
    """Return the simulated schedules that the hardware profile cannot tell from the recommended one."""
    resolution = scenario.resolution
    return tuple(
        candidate.expression
        for candidate in candidates
        if candidate.expression != recommended.expression
        and candidate.simulated_ticks is not None
        and abs(ratio_of(scenario, candidate, recommended) - 1) <= resolution
    )
