"""A record: one drawn scenario with every plan that a full search simulated, winners and losers."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from ...compiler import compile_text
from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Kernels,
    OpCase,
    OpChoice,
    Wait,
    silent,
)
from ...compiler.ir.topologies import TOPOLOGIES
from ...compiler.planning.build import build_op_plan, expression_of
from ...compiler.templates import BASELINE
from ...simcore import simulate_op
from ...simcore.memo.memo import StoredFunctions, content_hash
from ..bespoke import Proposer, SearchOptions, SimulatedPlan, optimize
from ..bespoke.stage import DEFAULT_EVALUATIONS, budget_of, is_searched
from ..bounds.lower_bound import lower_bound
from ..candidates.candidate import Candidate, forms_of
from ..candidates.predicted import predicted_candidates
from ..candidates.shortlist import shortlist_unit, simulate_shortlist, simulate_variants
from ..estimate.makespan import estimate_ticks
from ..solver import enumerate_space
from ..work.workers import SimulationJob, Workers
from .families import Drawn, ScenarioFamily

TOP = 8
# Schedules of which all execution options are tried together, beside the serial one.
NUM_VARIED = 3
# Estimated plans for each one that is simulated.
PER_SIMULATION = 25
# Options whose estimate is above this multiple of the best known time are not simulated.
MAX_ESTIMATE_RATIO = 1.3


@dataclass(frozen=True, slots=True)
class Tried:
    """A simulated plan; ``estimate_ticks`` is the step-level estimate of it."""

    expression: str
    proposer: str
    ticks: int
    unit_bytes: int
    estimate_ticks: float


@dataclass(frozen=True, slots=True)
class Record:
    """What a full search found in scenario ``idx`` of a seed; ``baseline`` is the expression of the serial schedule."""

    seed: int
    idx: int
    family: ScenarioFamily
    bound_ticks: int
    baseline: str
    plans: tuple[Tried, ...]


def record_of(drawn: Drawn) -> Record:
    """Search ``drawn`` for longer than advice does, then try execution options jointly; in this process."""
    scenario, pool = drawn.scenario, Workers()
    candidates = _simulated_space(scenario, pool)
    bound = lower_bound(scenario).ticks
    known = tuple(_plan(candidate) for candidate in candidates if candidate.choice and candidate.simulated_ticks)
    plans = known
    if is_searched(scenario):
        options = SearchOptions(lambda schedule: shortlist_unit(scenario, schedule), bound, known=_overlapping(known))
        budget = replace(budget_of(DEFAULT_EVALUATIONS, scenario.num_ranks, PER_SIMULATION), max_vain=None)
        found = optimize(scenario, budget, options, pool=pool)
        plans = tuple({plan.choice: plan for plan in (*known, *found.plans)}.values())
    plans = (*plans, *_with_joint_options(scenario, plans, pool))
    serial = min((c for c in candidates if c.is_serial and c.simulated_ticks), key=lambda c: c.best_us)
    return Record(drawn.seed, drawn.idx, drawn.family, bound, serial.expression, tuple(map(_tried(scenario), plans)))


def _simulated_space(scenario: OpCase, pool: Workers) -> list[Candidate]:
    """Return the candidates of advice without a bespoke search."""
    space = enumerate_space(scenario)
    candidates = predicted_candidates(scenario, space.structures)
    candidates = simulate_shortlist(pool, scenario, candidates, TOP, silent)
    return simulate_variants(pool, scenario, candidates, silent)


def _plan(candidate: Candidate) -> SimulatedPlan:
    assert candidate.choice and candidate.simulated_ticks and candidate.unit_bytes, "simulated templates"
    ticks, unit_bytes = candidate.simulated_ticks, candidate.unit_bytes
    return SimulatedPlan(candidate.choice, candidate.schedule, ticks, unit_bytes, Proposer.TEMPLATE)


def _overlapping(plans: Iterable[SimulatedPlan]) -> tuple[SimulatedPlan, ...]:
    return tuple(plan for plan in plans if plan.choice.template != BASELINE.name)


def _with_joint_options(scenario: OpCase, plans: tuple[SimulatedPlan, ...], pool: Workers) -> tuple[SimulatedPlan, ...]:
    """Simulate the serial schedule and the fastest others with all execution options together."""
    limit = MAX_ESTIMATE_RATIO * min(plan.ticks for plan in plans)
    known, new = {plan.choice for plan in plans}, dict[OpChoice, SimulationJob]()
    for choice in joint_options(scenario, plans):
        if choice not in known and choice not in new:
            schedule = build_op_plan(scenario, choice)
            if choice.template == BASELINE.name or estimate_ticks(scenario, schedule) <= limit:
                new[choice] = SimulationJob(scenario, schedule, shortlist_unit(scenario, schedule))
    results = pool.run(list(new.values()))
    return tuple(
        SimulatedPlan(choice, job.schedule, result.makespan_ticks, result.unit_bytes, Proposer.OPTIONS)
        for (choice, job), result in zip(new.items(), results, strict=True)
        if result is not None
    )


def joint_options(scenario: OpCase, plans: Iterable[SimulatedPlan]) -> Iterable[OpChoice]:
    """Yield the fastest serial and the fastest other schedules with all execution options together."""
    ranked = sorted((plan for plan in plans if not plan.choice.engine.by_library), key=lambda plan: plan.ticks)
    serial = [plan.choice for plan in ranked if plan.choice.template == BASELINE.name]
    others = dict.fromkeys(plan.choice for plan in ranked if plan.choice.template != BASELINE.name)
    by_sm = next((choice for choice in serial if choice.engine.kind is EngineKind.SM), None)
    for base in (*list(others)[:NUM_VARIED], *serial[:1], by_sm):
        yield from forms_of(scenario, base)


def _tried(scenario: OpCase) -> Callable[[SimulatedPlan], Tried]:
    def tried(plan: SimulatedPlan) -> Tried:
        library = plan.choice.engine.by_library
        estimate = plan.ticks if library else estimate_ticks(scenario, plan.schedule)
        return Tried(expression_of(plan.choice), plan.proposer.value, plan.ticks, plan.unit_bytes, float(estimate))

    return tried


# Version of what ``record_of`` does: raise it with every change of the search that the fingerprint does not see.
PROCEDURE = 3

_FABRICS = {topology.name: topology for topology in TOPOLOGIES}
SWITCH, RING, FULL_MESH = (_FABRICS[name] for name in ("switch", "ring", "full_mesh"))
_IN = "magus.compiler.ir.topologies"
FUNCTIONS: StoredFunctions = {
    SWITCH.connect: (f"{_IN}.switch", "_connect"),
    SWITCH.reject: (f"{_IN}.switch", "_reject"),
    SWITCH.where: (f"{_IN}.base", "_busiest"),
    RING.connect: (f"{_IN}.ring", "_connect"),
    RING.where: (f"{_IN}.ring", "_where"),
    FULL_MESH.connect: (f"{_IN}.full_mesh", "_connect"),
    FULL_MESH.where: (f"{_IN}.full_mesh", "_where"),
    FULL_MESH.reject: (f"{_IN}.base", "_fits"),
    FULL_MESH.more_links: (f"{_IN}.base", "_no_more_links"),
    FULL_MESH.node_size: (f"{_IN}.base", "_no_nodes"),
    FULL_MESH.grid: (f"{_IN}.base", "_no_grid"),
    FULL_MESH.part: (f"{_IN}.one_level", "_same"),
    RING.part: (f"{_IN}.base", "_no_part"),
    FULL_MESH.plainer: (f"{_IN}.base", "_no_plainer"),
}
"""What stands in keys for the functions of the fabrics that are drawn; of those that all share once."""

UNIT_BYTES = 4096
DMA, SM = EngineKind.DMA, EngineKind.SM
AG = (
    "x = tensor bf16[{m}, 1024] shard rows; w = tensor bf16[1024, 4096] shard cols; xg = all_gather(x); y = gemm(xg, w)"
)
RS = (
    "h = tensor bf16[{m}, 4096] shard cols; w = tensor bf16[4096, 1024] shard rows; p = gemm(h, w); "
    "y = reduce_scatter(p)"
)
NUM_RANKS = 4

MI_MESH, MI_RING = ("MI300X", "full_mesh(xgmi)"), ("MI300X", "ring(xgmi)")
MI_SWITCH, H_SWITCH = ("MI300X", "switch(nvswitch, link=nvlink)"), ("H100", "switch(nvswitch, link=nvlink)")
H_RING, H_MESH = ("H100", "ring(nvlink)"), ("H100", "full_mesh(xgmi)")

Case = tuple[tuple[str, str], str, int, str, int, EngineKind, int, int]
# GPU and fabric, workload, rows; template, chunks, engine, number of engines, streams. All run in about a second.
CASES: tuple[Case, ...] = (
    (MI_MESH, AG, 256, "serial", 4, DMA, 3, 1),
    (MI_MESH, AG, 256, "uniform_fused_1d", 16, DMA, 3, 1),
    (MI_MESH, RS, 256, "shard_p2p", 4, SM, 8, 1),
    (MI_MESH, RS, 256, "uniform_fused_2d", 16, SM, 8, 1),
    (MI_RING, AG, 128, "hetero_fused_1d", 8, DMA, 2, 1),
    (MI_RING, AG, 128, "hetero_unfused_1d", 8, SM, 6, 4),
    (MI_RING, RS, 128, "serial", 4, SM, 16, 1),
    (MI_RING, RS, 128, "uniform_fused_1d", 8, DMA, 1, 1),
    (MI_SWITCH, AG, 512, "shard_p2p", 4, DMA, 1, 1),
    (MI_SWITCH, AG, 512, "serial", 4, SM, 4, 1),
    (H_SWITCH, AG, 512, "hetero_fused_1d", 16, SM, 16, 1),
    (H_SWITCH, AG, 64, "uniform_fused_2d", 16, DMA, 3, 1),
    (H_SWITCH, RS, 512, "hetero_unfused_1d", 16, DMA, 3, 4),
    (H_SWITCH, RS, 64, "hetero_fused_1d", 8, SM, 32, 1),
    (H_SWITCH, RS, 64, "serial", 4, DMA, 8, 1),
    (H_RING, AG, 256, "uniform_fused_1d", 32, SM, 12, 1),
    (H_RING, AG, 256, "shard_p2p", 4, SM, 4, 1),
    (H_MESH, RS, 256, "uniform_fused_2d", 8, DMA, 8, 1),
    (H_MESH, RS, 256, "hetero_fused_1d", 4, DMA, 1, 1),
    (H_MESH, AG, 1024, "hetero_unfused_1d", 4, DMA, 4, 1),
)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)
BY_GET = ExecutionOptions(direction=Direction.GET, protocol=CopyProtocol.LL)
WITH_OPTIONS = (
    ((MI_MESH, AG, 256, "hetero_fused_1d", 16, DMA, 3, 1), PERSISTENT),
    ((H_SWITCH, AG, 512, "hetero_unfused_1d", 16, DMA, 3, 4), PERSISTENT),
    ((H_SWITCH, RS, 64, "hetero_fused_1d", 8, SM, 32, 1), PERSISTENT),
    ((MI_RING, AG, 128, "serial", 4, SM, 16, 1), BY_GET),
    ((MI_RING, AG, 512, "hetero_fused_1d", 16, SM, 8, 1), PERSISTENT),
    ((H_RING, AG, 256, "uniform_fused_2d", 16, SM, 8, 1), PERSISTENT),
    ((H_SWITCH, RS, 256, "uniform_fused_2d", 8, SM, 8, 1), replace(PERSISTENT, protocol=CopyProtocol.LL128)),
)


@cache
def engine_version() -> str:
    """Return the version of search, simulator and estimate; takes about a second."""
    return f"{PROCEDURE}-{fingerprint()}"


def key_of(drawn: Drawn) -> str:
    """Return the key of the record of ``drawn``: 64 hexadecimal digits."""
    return content_hash((engine_version(), drawn.scenario), FUNCTIONS)


@cache
def fingerprint() -> str:
    """Return the hash of simulator and estimate, in hexadecimal; takes about a second."""
    digest = hashlib.sha256(b"estimates")
    usual = tuple((case, ExecutionOptions()) for case in CASES)
    for ((gpu, fabric), workload, rows, template, chunks, kind, count, streams), options in (*usual, *WITH_OPTIONS):
        scenario = _scenario(gpu, fabric, workload.format(m=rows))
        choice = OpChoice(template, chunks, EngineChoice(kind, count), streams, tactics=options)
        schedule = build_op_plan(scenario, choice)
        ticks = simulate_op(scenario, schedule, unit_bytes=UNIT_BYTES).makespan_ticks
        # Estimates to the digits that are safe to compare.
        estimate = f"{estimate_ticks(scenario, schedule):.6g}"
        digest.update(f"\n{expression_of(choice)} {ticks} {estimate}".encode())
    return digest.hexdigest()


def _scenario(gpu: str, fabric: str, workload: str) -> OpCase:
    return (
        compile_text(
            f'use "amd/mi300x"\nuse "nvidia/h100"\nsystem node {{ gpus {NUM_RANKS} x {gpu}; fabric {fabric} }}\n'
            f"workload random on node {{ {workload} }}\n"
        )
        .scenario()
        .case
    )
