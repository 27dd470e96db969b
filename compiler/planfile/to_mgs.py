"""Write any schedule as an explicit plan in the language; compiling the text gives the same plan."""

from collections.abc import Iterable

from ..ir import Direction, Reach, Reduction, Region, Scenario, Schedule, Step, TileGroup, Transfer
from ..planning.build import compute_sms
from ..planning.expression import non_default_options


def plan_text(scenario: Scenario, schedule: Schedule, name: str) -> str:
    """``schedule NAME for WORKLOAD { plan ... }`` with every transfer, tile group and wait.

    Ranks with different steps get a block ``rank r { ... }`` each. The text compiles to the same SM and buffer pools.
    """
    lines = [f"schedule {name} for {scenario.workload.name} {{", f"  plan by {_head(scenario, schedule)}"]
    for rank, steps in enumerate(schedule.each_rank(scenario.num_ranks)):
        inner = [f"    {_step(scenario, step)}" for step in steps]
        lines += [f"  rank {rank} {{", *inner, "  }"] if inner else [f"  rank {rank} {{ }}"]
    if not schedule.by_rank:
        lines += [f"  {_step(scenario, step)}" for step in schedule.steps]
    for override in schedule.overrides:
        lines.append(f"  override rank {override.rank} {{ {_step(scenario, override.step)} }}")
    return "\n".join([*lines, "}"]) + "\n"


def _head(scenario: Scenario, schedule: Schedule) -> str:
    apart = schedule.compute_sms != compute_sms(scenario, schedule.engine, overlaps=True)
    words = [str(schedule.engine), *(["apart"] if apart else [])]
    return " ".join([*words, *(f"{word} {value}" for word, value in non_default_options(schedule.tactics))])


def _step(scenario: Scenario, step: Step) -> str:
    moved = scenario.workload.moved
    tensor = moved.name if moved is not None else scenario.workload.output
    match step:
        case Transfer():
            side = "to" if step.direction is Direction.PUT else "from"
            whom = "all" if step.reach is Reach.ALL else step.peer
            words = [f"{step.direction.value} {_region(tensor, step.region)} {side} {whom} signal {step.signal}"]
            words += _after(step.after)
            words += [] if step.lane is None else [f"lane {step.lane}"]
            words += ["reduce"] if step.reduce else []
        case TileGroup():
            output = scenario.workload.stage(step.kernel).output
            words = ["compute " + ", ".join(_region(output, region) for region in step.regions), f"k {step.k}"]
            words += [*_after(step.after), f"stream {step.stream}", *(["accumulate"] if step.accumulate else [])]
        case Reduction():
            words = [f"reduce {_region(tensor, step.region)} parts {step.num_parts}"]
            words += [*_after(step.after), f"stream {step.stream}"]
    return f"{step.name} = {' '.join(words)}"


def _region(tensor: str, region: Region) -> str:
    return f"{tensor}.shard({region.owner})[{region.rows}, {region.cols}]"


def _after(names: Iterable[str]) -> list[str]:
    joined = ", ".join(names)
    return [f"after {joined}"] if joined else []
