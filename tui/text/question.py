"""The question in one line."""

from pathlib import Path

from ...compiler.ir import GraphScenario, Scenario, Settings, Workload
from .ops import ops_line


def question_line(scenario: GraphScenario) -> str:
    """Return the question in one line: workload, pattern and shape of the one op, or the ops; and the system."""
    return ops_line(scenario) if scenario.pair is None else scenario_line(scenario.pair)


def scenario_line(scenario: Scenario) -> str:
    """Return the question in one line: workload, pattern, shape, system."""
    workload, system, shape = scenario.workload, scenario.system, shape_text(scenario.workload)
    fabric = system.fabric.topology.name.replace("_", " ")
    if workload.loads and workload.pattern.consumes:
        shape = shape.replace("per rank", f"at rank {workload.rank}, which gets most,")
    what = f"{workload.label} {shape}" if shape else workload.label
    return f"{workload.name}: {what} on {system.num_ranks} x {system.gpu.name}, {fabric}"


def shape_text(workload: Workload) -> str:
    """Return the shape of a rank's computation; empty for a kernel alone other than a GEMM, and without a kernel."""
    if workload.then is not None:
        first, then = (shape_text(workload.stage(kernel)).removesuffix(" per rank") for kernel in range(2))
        return f"{first}, then {then.partition(' ')[2]} per rank"
    compute, alone = workload.compute, workload.moved is None and workload.gemm is None
    return "" if compute is None or alone or not compute.text else f"{compute.text} per rank"


def scenario_words(path: Path, settings: Settings, workload: str) -> tuple[str, ...]:
    """Return what names a workload of a file on the command line."""
    given = (word for name, value in settings for word in ("--set", f"{name}={value}"))
    return str(path), "--workload", workload, *given
