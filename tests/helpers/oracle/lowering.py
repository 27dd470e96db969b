"""What the tests of lowering share: plans under other tactics, GPUs with more in their profile, and the oracle."""

from dataclasses import replace

from magus.compiler.ir import (
    Dma,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Gpu,
    OpCase,
    OpChoice,
    OpPlan,
    SmCopy,
    Step,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from magus.simcore import RunOptions, RunOutcome, simulate_op
from magus.simcore.cores.engine import Core, run
from magus.simcore.lower.machine import Idealization
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.lower.variability import perturbation_of
from magus.simcore.program.program import OpKind, Run
from magus.simcore.simulate import Case
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle

UNIT = 1024


def on_gpu(scenario: OpCase, gpu: Gpu) -> OpCase:
    """The same scenario with another GPU."""
    return replace(scenario, system=replace(scenario.system, gpu=gpu))


def with_dma(scenario: OpCase, dma: Dma) -> OpCase:
    """The same scenario with other copy engines."""
    return on_gpu(scenario, replace(scenario.gpu, dma=dma))


def with_copies(scenario: OpCase, sm_copy: SmCopy) -> OpCase:
    """The same scenario with other copies by SMs."""
    return on_gpu(scenario, replace(scenario.gpu, sm_copy=sm_copy))


def plan(
    *steps: Step,
    sms: int = 0,
    dma: int = 1,
    mode: EngineMode = EngineMode.OWN,
    compute_sms: int = 304,
    tactics: ExecutionOptions | None = None,
) -> OpPlan:
    """A plan of ``steps``, moved by ``sms`` SMs, or by ``dma`` copy engines if there are none."""
    engine = EngineChoice(EngineKind.SM, sms, mode) if sms else EngineChoice(EngineKind.DMA, dma, mode)
    return OpPlan("p", steps, engine, compute_sms, 0, tactics=tactics or ExecutionOptions())


def lower_op(
    scenario: OpCase,
    schedule: OpPlan,
    *,
    unit_bytes: int,
    fold: bool = True,
    ideal: Idealization = Idealization.NONE,
) -> LoweredPart:
    """The only part of a plan of one op."""
    plan = plan_of(scenario, schedule)
    return lower(scenario.system, plan, unit_bytes=unit_bytes, fold=fold, ideal=ideal).parts[0]


def late_part(scenario: OpCase, schedule: OpPlan, unit_bytes: int) -> LoweredPart:
    """The only part of a plan of one op on a system some of whose ranks are late, with all ranks."""
    case = Case(scenario.system, plan_of(scenario, schedule), perturbation_of(scenario.system, None))
    return case.lowered(unit_bytes, fold=False).parts[0]


def lowered_run(scenario: OpCase, schedule: OpPlan, unit_bytes: int = UNIT) -> tuple[LoweredPart, Run]:
    """A plan as a program, and its run."""
    lowered = lower_op(scenario, schedule, unit_bytes=unit_bytes)
    return lowered, run(lowered.program)


def makespan(scenario: OpCase, schedule: OpPlan, unit_bytes: int = UNIT) -> int:
    """The time of a plan."""
    return lowered_run(scenario, schedule, unit_bytes)[1].makespan_ticks


def done_at(lowered: LoweredPart, finished: Run, name: str, rank: int = 0) -> int:
    """When a step was done."""
    (ops,) = (ops for ops in lowered.steps if ops.step.name == name and ops.rank == rank)
    return int(finished.op_done[ops.done])


def starts_of(lowered: LoweredPart, finished: Run, name: str, kind: OpKind) -> list[int]:
    """When the ops of one kind that belong to a step began."""
    program = lowered.program
    label = program.labels.index(name)
    chosen = (program.op_kind == kind) & (program.op_label_idx == label)
    return [int(start) for start in finished.op_start[chosen]]


def differs_from_oracle(scenario: OpCase, schedule: OpPlan, unit_bytes: int, *, fold: bool) -> list[str]:
    """What any core gets other than the event-driven oracle."""
    program = lower_op(scenario, schedule, unit_bytes=unit_bytes, fold=fold).program
    expected = Oracle(program).run()
    return [
        f"{core.value}: {name}" for core in Core for name in differences(program, run(program, core=core), expected)
    ]


def assert_all_agree(scenario: OpCase, choice: OpChoice, unit_bytes: int = 4096) -> None:
    """A choice builds a correct plan that runs to its end alike folded, unfolded and in the oracle."""
    schedule = build_op_plan(scenario, choice)
    ways = (RunOptions(fold) for fold in (True, False))
    folded, every = (simulate_op(scenario, schedule, unit_bytes=unit_bytes, options=way) for way in ways)
    program = lower_op(scenario, schedule, unit_bytes=unit_bytes).program

    assert not check_plan(scenario, schedule)
    assert folded.outcome is RunOutcome.DONE
    assert folded.makespan_ticks == every.makespan_ticks
    assert differences(program, run(program), Oracle(program).run()) == []
