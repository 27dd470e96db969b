"""Schedules of one op as plans of one part."""

from magus.compiler.ir import OpCase, OpPlan, Plan, System, Workload


def alone(scenario: OpCase, schedule: OpPlan) -> tuple[System, Workload, Plan]:
    """What ``carry_out`` takes, of one op."""
    name, workload = scenario.name, scenario.shape
    return scenario.system, Workload.of_one(workload, name), Plan.of_one(name, workload, schedule)
