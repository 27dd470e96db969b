"""``magus simulate``: one schedule, once or under many seeds, and the profile of its writes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ....advisor import lower_bound
from ....advisor.answer.export import bound_document, result_document, several_result_document
from ....advisor.answer.extrapolation import outside_calibration, outside_of_plan
from ....advisor.bounds.lower_bound import Bound, workload_bound
from ....advisor.candidates.shortlist import packet_bytes, simulated_ranks
from ....advisor.solver.memory import check_memory, check_workload_memory
from ....compiler.codes import Code
from ....compiler.ir import (
    JsonObject,
    OpCase,
    OpPlan,
    Plan,
    Rejection,
    Scenario,
    Schedule,
    System,
    WorkloadCut,
)
from ....compiler.planning.build import ScheduleError
from ....compiler.resolve.devices.variability import write_profile
from ....compiler.resolve.schedules.from_text import plan_named, resolve_schedule, schedule_named
from ....simcore import (
    Result,
    RunOptions,
    RunOutcome,
    ShownRun,
    WhatIf,
    affordable_unit,
    plan_of,
    record_writes,
    run_of,
    simulate,
    simulate_op,
    simulate_seeds,
)
from ....simcore.simulate_layers import FEWEST_LAYERS, SHOWN_LAYER, simulate_layers
from ...text.door import Exit, print_json, put
from ...text.progress import progress_line
from ...text.result import result_text
from ...text.sweep import seeds_document, seeds_text
from ..inputs import ScenarioInput, placed, save, show
from ..out import SimulateOptions, explain_outcome, stoppable
from ..running import command, exit_code_if_strict

SEEDED_LINE_HOPS = 1_000_000_000
"""Over all seeds and ranks; above it the seeds are simulated in larger packets."""

EXPLAINED_LINE_HOPS = 60_000_000
"""Of each what-if run; above it those are made in larger packets."""


@command
def simulate_file(source: ScenarioInput, options: SimulateOptions) -> Exit:
    """Simulate a schedule and print its times, traffic and losses."""
    found, draw = source.read()
    step = found.step(source.workload)
    if step is not None:
        from ..answers.step import simulate_step  # few files have one

        return simulate_step(source, step, options)
    question = found.scenario(source.workload)
    seeds = options.seeds(question)
    with placed(found.span_of(question.name)):
        if question.only_case is None:
            ran = _ran(question, options, partial(draw, question))
        else:
            ran = _ran_alone(question.only_case, options)
    result, done = ran.result, ran.result.outcome is RunOutcome.DONE
    by_seed = ran.by_seed(seeds) if seeds and done else ()
    recorded = ran.record() if options.record is not None and done else Exit.DONE
    drawn = options.pictures.save(ran.shown()) if done else Exit.DONE
    if options.as_json:
        document = ran.document | {"outside_calibration": list(ran.outside)}
        print_json(document | {"seeds": seeds_document(seeds, by_seed, ran.seeded_layers)} if by_seed else document)
    else:
        put(result_text(result, question, ran.bound, ran.outside, cut=ran.cut))
        if by_seed:
            what = " of the routing" if question.drawn is not None else ""
            put(seeds_text(seeds, by_seed, ran.seeded_layers, what))
    if not done:
        return explain_outcome(result)
    return max(recorded, drawn, exit_code_if_strict(question, options.strict, ran.outside))


@dataclass(frozen=True, slots=True)
class _Ran:
    """A simulated schedule, and how what was asked besides is made of it."""

    result: Result
    bound: Bound
    outside: tuple[str, ...]
    document: JsonObject
    shown: Callable[[], ShownRun]
    by_seed: Callable[[range], tuple[Result, ...]]
    record: Callable[[], Exit]
    seeded_layers: int = 1
    cut: WorkloadCut | None = None


def _ran_alone(scenario: OpCase, options: SimulateOptions) -> _Ran:
    """Simulate a schedule of one op."""
    schedule = resolve_schedule(scenario, options.schedule, show)
    check_memory(scenario, schedule)
    bound = lower_bound(scenario.covering(schedule))
    result = _simulated(scenario, schedule, options, bound.ticks)
    return _Ran(
        result,
        bound,
        outside_calibration(scenario, (schedule,)),
        result_document(result, scenario.shape.name),
        partial(run_of, scenario, result),
        partial(_by_seed, scenario, schedule),
        partial(_record, scenario, schedule, result.unit_bytes, options),
    )


def _ran(scenario: Scenario, options: SimulateOptions, drawn: Callable[[int], Scenario]) -> _Ran:
    """Simulate a schedule of several ops; ``drawn`` is the scenario with its routing under a seed."""
    check_workload_memory(scenario)
    chosen = schedule_named(scenario, options.schedule)
    plan = plan_named(scenario, options.schedule).first_layer()
    if options.record is not None and len(plan.parts) > 1:
        message = f"{plan.expression} has {len(plan.parts)} parts, and writes are recorded of one"
        raise ScheduleError(Rejection(Code.MGS523, message, "record those of one op: --workload names another"))
    result = _explained(scenario, chosen, _simulated_layers(scenario, chosen, options), options)
    check_workload_memory(scenario, result.schedule.staging_bytes)
    bound = workload_bound(scenario.covering(plan))
    num_layers = min(FEWEST_LAYERS, scenario.num_layers)
    drawn = drawn if scenario.drawn is not None else lambda _: scenario
    part = plan.parts[0]
    case = OpCase(part.name, scenario.system, part.shape)
    return _Ran(
        result,
        bound,
        outside_of_plan(scenario.system, plan),
        several_result_document(scenario, plan, result) | {"bound": bound_document(bound)},
        partial(run_of, scenario, result, chosen),
        lambda seeds: _layers_by_seed(drawn, options.schedule, num_layers, seeds),
        partial(_record, case, part.schedule, result.unit_bytes, options),
        num_layers,
        plan.cut,
    )


def _simulated_layers(scenario: Scenario, chosen: Schedule | Plan, options: SimulateOptions) -> Result:
    with stoppable() as pressed, progress_line() as progress:
        return simulate_layers(
            scenario.system,
            scenario.workload,
            chosen,
            name=scenario.name,
            unit_bytes=scenario.gpu.line_bytes if options.at_line else packet_bytes(scenario.gpu),
            seed=None if options.num_seeds else options.seed,
            options=RunOptions(options.fold, True, pressed, lambda line_hops: progress("run", line_hops, 0)),
        )


def _explained(scenario: Scenario, chosen: Schedule | Plan, result: Result, options: SimulateOptions) -> Result:
    """``result`` with the losses of a layer and its neighbours: no bound of all layers is one of the few that run."""
    if result.outcome is not RunOutcome.DONE:
        return result
    system, workload = scenario.system, scenario.workload
    shifted = chosen.layers_shifted if isinstance(chosen, Schedule) else 0
    plan = plan_named(scenario, options.schedule, min(SHOWN_LAYER + shifted, scenario.num_layers))
    repeat = None if workload.repeat is None else replace(workload.repeat, count=plan.num_layers)
    unit, line_hops = packet_bytes(scenario.gpu), result.line_hops * plan.num_layers // result.num_simulated
    while line_hops * result.unit_bytes > EXPLAINED_LINE_HOPS * unit:
        unit *= 2
    bound = workload_bound(replace(scenario, workload=replace(workload, repeat=repeat)).covering(plan))
    with stoppable() as pressed, progress_line() as progress:
        explained = simulate(
            system,
            plan,
            name=scenario.name,
            unit_bytes=unit,
            seed=None if options.num_seeds else options.seed,
            what_if=WhatIf(unit, bound.ticks),
            options=RunOptions(options.fold, True, pressed, lambda line_hops: progress("explain", line_hops, 0)),
        )
        if pressed():  # the runs that explain it were cut off
            raise KeyboardInterrupt
    return replace(result, waterfall=explained.waterfall, cil=explained.cil)


def _simulated(scenario: OpCase, schedule: OpPlan, options: SimulateOptions, bound_ticks: int) -> Result:
    packet, ranks = packet_bytes(scenario.gpu), simulated_ranks(scenario, schedule)
    coarse = affordable_unit(scenario, schedule, packet, EXPLAINED_LINE_HOPS // ranks)
    # The bound is of all ranks, a replay simulates one.
    what_if = WhatIf(coarse, bound_ticks) if scenario.system.replay is None else None
    with stoppable() as pressed, progress_line() as progress:
        result = simulate_op(
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


def _by_seed(scenario: OpCase, schedule: OpPlan, seeds: range) -> tuple[Result, ...]:
    """One result for each seed, in packets that are as small as the budget of line-hops allows."""
    budget = max(1, SEEDED_LINE_HOPS // (scenario.num_ranks * len(seeds)))
    unit = affordable_unit(scenario, schedule, packet_bytes(scenario.gpu), budget)
    return _under(seeds, scenario.system, plan_of(scenario, schedule), scenario.name, unit)


def _layers_by_seed(
    drawn: Callable[[int], Scenario], schedule: str | None, layers: int, seeds: range
) -> tuple[Result, ...]:
    """One result for each seed, of so many layers, in packets: what varies is drawn with it, and the routing."""
    found: list[Result] = []
    for seed in seeds:
        scenario = drawn(seed)
        plan = plan_named(scenario, schedule, layers)
        found += _under(range(seed, seed + 1), scenario.system, plan, scenario.name, packet_bytes(scenario.gpu))
    return tuple(found)


def _under(seeds: range, system: System, plan: Plan, name: str, unit: int) -> tuple[Result, ...]:
    with progress_line() as progress:
        options = RunOptions(progress=lambda line_hops: progress("run", line_hops, 0))
        return simulate_seeds(system, plan, seeds, name=name, unit_bytes=unit, options=options)


def _record(scenario: OpCase, schedule: OpPlan, unit_bytes: int, options: SimulateOptions) -> Exit:
    """Write the profile of the writes to rank 0 to the file that the options name."""
    assert options.record is not None, "asked where a file is named"
    writes = record_writes(scenario, schedule, unit_bytes=unit_bytes, seed=options.seed)
    return save(options.record, write_profile(writes), f"{len(writes)} writes to rank 0")
