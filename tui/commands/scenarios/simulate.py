"""``magus simulate``: one schedule, once or under many seeds, and the profile of its writes."""

from ....advisor import lower_bound
from ....advisor.answer.export import result_document
from ....advisor.answer.extrapolation import outside_calibration
from ....advisor.candidates.shortlist import packet_bytes, simulated_ranks
from ....advisor.solver.memory import check_memory
from ....compiler.ir import Scenario, Schedule
from ....compiler.resolve.devices.replay_file import write_profile
from ....compiler.resolve.schedules.from_text import resolve_schedule
from ....compiler.text.writing import check_writable
from ....simcore import (
    Result,
    RunOptions,
    RunOutcome,
    WhatIf,
    affordable_unit,
    record_writes,
    run_of_pair,
    simulate,
    simulate_seeds,
)
from ...exit_codes import Exit
from ...text.door import print_json, put
from ...text.progress import progress_line
from ...text.render import result_text
from ...text.seeds import seeds_document, seeds_text
from ..console import save, show
from ..graphs.simulate import simulate_graph_of
from ..inputs import ScenarioInput
from ..running import exit_code_if_strict, run_command
from ..simulate_options import SimulateOptions, explain_outcome, stoppable

SEEDED_LINE_HOPS = 1_000_000_000
"""Over all seeds and ranks; above it the seeds are simulated in larger packets."""

EXPLAINED_LINE_HOPS = 60_000_000
"""Of each what-if run; above it those are made in larger packets."""


def simulate_file(source: ScenarioInput, options: SimulateOptions) -> Exit:
    """Simulate a schedule and print its times, traffic and losses."""

    def action() -> Exit:
        if options.record is not None:
            check_writable(options.record)
        options.pictures.check()
        question = source.scenario()
        scenario = question.pair
        if scenario is None:
            return simulate_graph_of(question, options)
        schedule = resolve_schedule(scenario, options.schedule, show)
        check_memory(scenario, schedule)
        bound, outside = lower_bound(scenario), outside_calibration(scenario, (schedule,))
        result = _simulated(scenario, schedule, options, bound.ticks)
        done = result.outcome is RunOutcome.DONE
        by_seed = _by_seed(scenario, schedule, options.seeds) if options.seeds and done else ()
        recorded = _record(scenario, schedule, result.unit_bytes, options) if done else Exit.DONE
        drawn = options.pictures.save(run_of_pair(scenario, result)) if done else Exit.DONE
        if options.as_json:
            document = result_document(result, scenario.workload.name) | {"outside_calibration": list(outside)}
            print_json(document | {"seeds": seeds_document(options.seeds, by_seed)} if by_seed else document)
        else:
            put(result_text(result, scenario, bound, outside))
            if by_seed:
                put(seeds_text(options.seeds, by_seed))
        if not done:
            return explain_outcome(result)
        return max(recorded, drawn, exit_code_if_strict(question, options.strict, outside))

    return run_command(action)


def _simulated(scenario: Scenario, schedule: Schedule, options: SimulateOptions, bound_ticks: int) -> Result:
    packet, ranks = packet_bytes(scenario.gpu), simulated_ranks(scenario, schedule)
    coarse = affordable_unit(scenario, schedule, packet, EXPLAINED_LINE_HOPS // ranks)
    # The bound is of all ranks, a replay simulates one.
    what_if = WhatIf(coarse, bound_ticks) if scenario.system.replay is None else None
    with stoppable() as pressed, progress_line() as progress:
        result = simulate(
            scenario,
            schedule,
            unit_bytes=scenario.gpu.line_bytes if options.at_line else packet,
            seed=None if options.num_seeds else options.seed,
            what_if=what_if,
            options=RunOptions(options.fold, True, pressed, lambda line_hops: progress("run", line_hops, 0)),
        )
        if pressed() and result.outcome is RunOutcome.DONE:  # the what-if runs that explain it were cut off
            raise KeyboardInterrupt
        return result


def _by_seed(scenario: Scenario, schedule: Schedule, seeds: range) -> tuple[Result, ...]:
    """One result for each seed, in packets that are as small as the budget of line-hops allows."""
    budget = max(1, SEEDED_LINE_HOPS // (scenario.num_ranks * len(seeds)))
    unit = affordable_unit(scenario, schedule, packet_bytes(scenario.gpu), budget)
    with progress_line() as progress:
        return simulate_seeds(
            scenario, schedule, seeds, unit_bytes=unit, progress=lambda line_hops: progress("run", line_hops, 0)
        )


def _record(scenario: Scenario, schedule: Schedule, unit_bytes: int, options: SimulateOptions) -> Exit:
    """Write the profile of the writes to rank 0, if the options name a file for it."""
    if options.record is None:
        return Exit.DONE
    writes = record_writes(scenario, schedule, unit_bytes=unit_bytes, seed=options.seed)
    return save(options.record, write_profile(writes), f"{options.record}: {len(writes)} writes to rank 0")
