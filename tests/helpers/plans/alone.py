"""Schedules of one op as plans of one part."""

from magus.compiler.ir import Graph, GraphPlan, Scenario, Schedule, System


def alone(scenario: Scenario, schedule: Schedule) -> tuple[System, Graph, GraphPlan]:
    """What ``carry_out`` takes, of one op."""
    name, workload = scenario.name, scenario.workload
    return scenario.system, Graph.of_one(workload, name), GraphPlan.of_one(name, workload, schedule)
