"""``magus simulate``: one schedule, once or under many seeds, and the profile of its writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...advisor import lower_bound
from ...advisor.candidates.shortlist import packet_bytes
from ...advisor.export import result_document
from ...advisor.extrapolation import outside_calibration
from ...advisor.solver.memory import check_memory
from ...compiler.ir import Cancelled, Scenario, Schedule, Settings
from ...compiler.resolve.devices.replay_file import write_profile
from ...compiler.resolve.schedules.from_text import resolve_schedule
from ...compiler.text.writing import check_writable
from ...simcore import Result, RunOptions, RunOutcome, WhatIf, affordable_unit, record_writes, simulate, simulate_seeds
from ..exit_codes import Exit
from ..text.door import print_json, put, say
from ..text.progress import progress_line
from ..text.render import result_text
from ..text.seeds import seeds_document, seeds_text
from .advise import answered, scenario_of, strictly
from .console import saved, show
from .interrupts import interruptible

SEEDED_LINE_HOPS = 1_000_000_000
"""Over all seeds and ranks; above it the seeds are simulated in larger packets."""


def simulate_file(
    file: Path,
    bindings: Settings,
    *,
    workload: str | None,
    schedule: str | None,
    at_line: bool,
    fold: bool,
    seed: int | None,
    num_seeds: int,
    record: Path | None,
    strict: bool,
    as_json_text: bool,
) -> Exit:
    """One schedule, by default the first that the file declares, else serial.

    With ``num_seeds`` also the percentiles over so many seeds, in packets; ``record`` is where a profile goes.
    """

    def action() -> Exit:
        if record is not None:
            check_writable(record)
        scenario = scenario_of(file, bindings, workload)
        chosen = resolve_schedule(scenario, schedule, show)
        check_memory(scenario, chosen)
        bound, unit = lower_bound(scenario), scenario.gpu.line_bytes if at_line else packet_bytes(scenario)
        outside = outside_calibration(scenario, (chosen,))
        result = _simulated(scenario, chosen, unit, fold, bound.ticks, None if num_seeds else seed)
        seeds = range(seed or 0, (seed or 0) + num_seeds)
        varied = _varied(scenario, chosen, seeds) if seeds and result.outcome is RunOutcome.DONE else ()
        recorded = Exit.DONE
        if record is not None and result.outcome is RunOutcome.DONE:
            writes = record_writes(scenario, chosen, unit_bytes=unit, seed=seed)
            recorded = saved(record, write_profile(writes), f"{record}: {len(writes)} writes to rank 0")
        if as_json_text:
            document = result_document(result, scenario.workload.name) | {"outside_calibration": list(outside)}
            print_json(document | {"seeds": seeds_document(seeds, varied)} if varied else document)
        else:
            put(result_text(result, scenario, bound, outside))
            if varied:
                put(seeds_text(seeds, varied))
        if result.outcome is not RunOutcome.DONE:
            return _explained(result)
        return max(recorded, strictly(scenario, strict, outside))

    return answered(action)


def _simulated(
    scenario: Scenario, schedule: Schedule, unit_bytes: int, fold: bool, bound_ticks: int, seed: int | None
) -> Result:
    # The bound is of all ranks, a replay of one.
    what_if = WhatIf(packet_bytes(scenario), bound_ticks) if scenario.system.replay is None else None
    with _stoppable() as pressed, progress_line() as progress:
        result = simulate(
            scenario,
            schedule,
            unit_bytes=unit_bytes,
            seed=seed,
            what_if=what_if,
            options=RunOptions(fold, True, pressed, lambda line_hops: progress("run", line_hops, 0)),
        )
        if pressed() and result.outcome is RunOutcome.DONE:  # what explains the run was cut off
            raise KeyboardInterrupt
        return result


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Ctrl-C as a wish to stop; before there is anything to show it interrupts as ever."""
    try:
        with interruptible() as pressed:
            yield pressed
    except Cancelled:
        raise KeyboardInterrupt from None


def _varied(scenario: Scenario, schedule: Schedule, seeds: range) -> tuple[Result, ...]:
    each = max(1, SEEDED_LINE_HOPS // (scenario.num_ranks * len(seeds)))
    unit = affordable_unit(scenario, schedule, packet_bytes(scenario), each)
    with progress_line() as progress:
        return simulate_seeds(
            scenario, schedule, seeds, unit_bytes=unit, progress=lambda line_hops: progress("run", line_hops, 0)
        )


def _explained(result: Result) -> Exit:
    """Why a run did not end."""
    say(f"magus: {result.outcome.value}")
    for sentence in result.deadlock:
        say(f"  {sentence}")
    if result.outcome is RunOutcome.CANCELLED:
        raise KeyboardInterrupt
    return Exit.INPUT
