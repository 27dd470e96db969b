"""A rule small enough to read: a tree over a few ratios of a GEMM and its collective, made of many estimated shapes.

It is fitted for one pattern on one system to the losses of all its schedules, and judged on shapes that it was not
fitted to. Or it is static: a tree over the inputs of FiCCO's rule (arXiv 2512.10236), of its four schedules. The paper
names what its rule looks at and prints no thresholds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2
from random import Random

import numpy as np
import numpy.typing as npt

from ... import __version__
from ...compiler.codes import Code
from ...compiler.ir import (
    COLUMN_STEP,
    TICKS_PER_SECOND,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    GemmShape,
    JsonObject,
    Kernels,
    OpCase,
    OpChoice,
    Pattern,
)
from ...compiler.planning.build import expression_of, reject_choice
from ...compiler.planning.knobs.engine import default_engine
from ...compiler.request.request import Request, RequestError
from ...compiler.request.scenario import scenario_of
from ...compiler.templates import BASELINE, BY_NAME
from ..bespoke.batches import costs_of
from ..candidates.predicted import predicted_candidates, usual_serials
from ..learned.boosted_trees import TreeNode, picked, small_tree

FloatArray = npt.NDArray[np.float64]

ROWS = tuple(1 << power for power in range(4, 17))
COLUMNS = (512, 1024, 1792, 2048, 3584, 4096, 7168, 8192, 16384)
"""Rows and columns of which shapes are drawn: tokens, and widths of layers of widely used models at one rank.

Every second width is another multiple of ``TILE``: models have those too, and most schedules cannot cut all of them.
"""

NUM_SHAPES, HELD_OUT = 1000, 0.25
MAX_LEAVES = 24

MOST_LOSS, NO_FIT = 1.0, 10.0
"""Losses beyond the first count like it; the second is that of a schedule that a shape cannot be cut for."""

_TEMPLATES = ("uniform_fused_1d", "hetero_fused_1d", "uniform_fused_2d")
_PIECES = (1, 2, 4)
TILE = 128
FEATURES = ("comm_over_gemm", "waves", "rows_per_rank", "m_over_k", "flops_per_byte", "over_balance", "traffic_bytes")
STATIC_FEATURES = ("m_over_k", "over_balance", "traffic_bytes")
"""Inputs of a static rule, those of FiCCO's; other trees look at the first five of ``FEATURES``."""

STATIC_ROWS = tuple(rows for rows in ROWS if rows >= 4096)
"""Rows of shapes for FiCCO's rule: its schedules cut each shard into as many pieces as there are ranks."""

FOUR = ("uniform_fused_1d", "hetero_fused_1d", "hetero_unfused_1d", "uniform_fused_2d")
EXACT = 0.005
"""A choice within this share of the best one is exact."""


@dataclass(frozen=True, slots=True)
class MachineRates:
    """What the ratios need of a system and pattern: seconds of a moved byte, operations per second, SMs, ranks.

    ``balance`` is operations per second over bytes per second of memory, both at their peak. ``gpu`` is the name of the
    GPU, a name of the language. ``consumes`` is whether the input of the GEMM moves, else its output does.
    """

    gpu: str
    s_per_byte: float
    flops_per_s: float
    sms: int
    ranks: int
    bytes_per_element: float
    consumes: bool
    balance: float

    def ratios(self, m: int, n: int, k: int) -> tuple[float, ...]:
        """Return the ``FEATURES`` of a shape, a GEMM of one rank."""
        moved = m * (k if self.consumes else n) * self.bytes_per_element
        flops = 2 * m * n * k
        traffic = (m * k + k * n + m * n) * self.bytes_per_element
        gemm_s = flops / self.flops_per_s
        return (
            moved * self.s_per_byte / gemm_s,
            m * n / (TILE * TILE * self.sms),
            m / self.ranks,
            m / k,
            flops / traffic,
            flops / traffic / self.balance,
            traffic,
        )


def rates_of(scenario: OpCase, gemm: GemmShape, s_per_byte: float = 0.0) -> MachineRates:
    """Return the rates of a scenario with its GEMM; ``s_per_byte`` is no input of a static rule."""
    peak = scenario.gpu.peak(gemm.dtype)
    return MachineRates(
        gpu=scenario.gpu.name,
        s_per_byte=s_per_byte,
        flops_per_s=float(peak),
        sms=scenario.gpu.sms,
        ranks=scenario.num_ranks,
        bytes_per_element=gemm.dtype.mean_bytes,
        consumes=scenario.shape.pattern.consumes,
        balance=peak / scenario.gpu.hbm.peak_bytes_per_s,
    )


@dataclass(frozen=True, slots=True)
class DistilledRule:
    """The tree with its schedules, and how often it is right.

    ``shapes`` were fitted to, ``tested`` not: of these ``exact`` is the share of picks within ``EXACT`` of the best
    schedule, ``loss_when_wrong`` the mean loss of the others, ``loss`` that of all. ``fixed_loss`` is the loss of the
    best single schedule. Times are estimates.
    """

    request: Request
    machine: MachineRates
    root: TreeNode
    schedules: tuple[str, ...]
    shapes: int
    tested: int
    exact: float
    loss_when_wrong: float
    loss: float
    fixed_loss: float

    def schedule(self, m: int, n: int, k: int) -> str:
        """Return the schedule for a GEMM of one rank."""
        return self.schedules[picked(self.root, self.machine.ratios(m, n, k))]


def distilled(
    request: Request,
    *,
    num_shapes: int = NUM_SHAPES,
    max_leaves: int = MAX_LEAVES,
    seed: int = 0,
    static: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DistilledRule:
    """Return a rule for the pattern, type and system of ``request``, whatever its sizes.

    A ``static`` one is a tree over the inputs of FiCCO's rule, for large shapes.

    Raises
    ------
    RequestError
        If the pattern has no GEMM beside a collective, or FiCCO's rule is none for it.
    """
    first = scenario_of(request).case
    if first.shape.gemm is None or first.shape.moved is None or first.shape.pattern.independent:
        raise RequestError(Code.MGS520, "pattern", f"{request.pattern} is no GEMM that waits for a collective")
    choices = four_choices(first, sharing=True) if static else _choices(first)
    if not choices:
        raise RequestError(Code.MGS520, "pattern", "FiCCO's rule is for AG+GEMM")
    shapes = _shapes(first.num_ranks, num_shapes, seed, static=static)
    rows: list[FloatArray] = []
    for idx, (m, n, k) in enumerate(shapes):
        progress(idx, len(shapes))
        rows.append(_ticks(scenario_of(replace(request, m=m, n=n, k=k)).case, choices))
    machine = _machine(request, first)
    known = round(len(shapes) * (1 - HELD_OUT))
    features, ticks = np.array([machine.ratios(*shape) for shape in shapes]), np.array(rows)
    root = fitted_tree(features[:known], ticks[:known], max_leaves=max_leaves, seed=seed, static=static)
    return _judged(request, machine, choices, root, features, _costs(ticks))


def fitted_tree(
    features: FloatArray, ticks: FloatArray, *, max_leaves: int = MAX_LEAVES, seed: int = 0, static: bool = False
) -> TreeNode:
    """Return the tree for the ``ratios`` of shapes [N, features] by their times of each choice [N, choices]."""
    seen = STATIC_FEATURES if static else FEATURES[:5]
    looked_at = np.where([name in seen for name in FEATURES], features, 0.0)  # a tree parts nothing by what is equal
    return small_tree(looked_at, _costs(ticks), max_leaves, seed)


def _costs(ticks: FloatArray) -> FloatArray:
    """Return bounded losses of ``ticks`` [shapes, choices], infinite where a choice does not fit."""
    losses = ticks / ticks.min(axis=1, keepdims=True) - 1
    return np.where(np.isfinite(losses), np.minimum(losses, MOST_LOSS), NO_FIT)


def _judged(
    request: Request,
    machine: MachineRates,
    choices: Sequence[OpChoice],
    root: TreeNode,
    features: FloatArray,
    costs: FloatArray,
) -> DistilledRule:
    """Judge ``root`` on the last shapes: ``features`` [shapes, features], ``costs`` [shapes, choices]."""
    known = round(len(features) * (1 - HELD_OUT))
    picks = np.array([picked(root, tuple(row)) for row in features[known:]])
    lost = costs[known:][np.arange(len(picks)), picks]
    wrong = lost[lost > EXACT]
    fixed = int(costs[:known].mean(axis=0).argmin())
    return DistilledRule(
        request=request,
        machine=machine,
        root=root,
        schedules=tuple(map(expression_of, choices)),
        shapes=known,
        tested=len(lost),
        exact=float((lost <= EXACT).mean()),
        loss_when_wrong=float(wrong.mean()) if len(wrong) else 0.0,
        loss=float(lost.mean()),
        fixed_loss=float(costs[known:, fixed].mean()),
    )


def four_choices(scenario: OpCase, *, sharing: bool = False) -> tuple[OpChoice, ...]:
    """Return FiCCO's four schedules as the paper has them; none where the workload or the rows permit one of them not.

    Each shard is cut into as many pieces as there are ranks and moved by the usual number of copy engines. Kernels of
    ``hetero_unfused_1d`` go to its usual number of streams, or where they are ``sharing`` the SMs, which the GPU must
    permit, to one for each peer, with tiles for their share.
    """
    ranks, engine = scenario.num_ranks, default_engine(scenario.system)
    cut = (OpChoice(name, ranks * ranks, engine, BY_NAME[name].default_streams) for name in FOUR)
    uniform, fused, unfused, columns = cut
    if sharing and scenario.gpu.gemm.fewest_sms:
        unfused = replace(unfused, streams=ranks - 1, tactics=ExecutionOptions(kernel=Kernels.SHARING))
    choices = (uniform, fused, unfused, columns)
    legal = scenario.shape.pattern is Pattern.AG_GEMM and scenario.shape.gemm is not None
    return choices if legal and all(reject_choice(scenario, choice) is None for choice in choices) else ()


def _choices(scenario: OpCase) -> tuple[OpChoice, ...]:
    """Schedules that fit most sizes: what users have, serial by SMs, and the fused templates in few pieces."""
    ranks, engine = scenario.num_ranks, default_engine(scenario.system)
    serial_by_sms = OpChoice(BASELINE.name, ranks, EngineChoice(EngineKind.SM, min(16, scenario.gpu.sms // 4)))
    cut = (OpChoice(name, ranks * pieces, engine) for name, pieces in product(_TEMPLATES, _PIECES))
    found = (*usual_serials(scenario), serial_by_sms, *cut)
    return tuple(choice for choice in found if choice.template == BASELINE.name or _is_known(scenario, choice))


def _is_known(scenario: OpCase, choice: OpChoice) -> bool:
    """Whether the template schedules the pattern at all: sizes may still not divide."""
    rejection = reject_choice(scenario, choice)
    return rejection is None or rejection.code is not Code.MGS511


def _shapes(ranks: int, count: int, seed: int, *, static: bool = False) -> tuple[tuple[int, int, int], ...]:
    """Different shapes in random order, rows in multiples of the ranks times the most pieces where they are many.

    For FiCCO's rule rows and the inner dimension can be cut into as many pieces as there are ranks.
    """
    random, found = Random(f"distill {seed}"), dict[tuple[int, int, int], None]()
    while len(found) < count:
        if static:
            rows, grain = random.choice(STATIC_ROWS) * random.choice((1, 1, 1.5)), COLUMN_STEP * ranks
            m, k = ranks**2 * round(rows / ranks**2), max(1, round(_width(random) / grain)) * grain
            found[m, _width(random), k] = None
            continue
        rows = random.choice(ROWS) * random.choice((1, 1, 1.5))
        grain = ranks * _PIECES[-1] if rows >= 8 * ranks else ranks
        m = max(ranks, round(rows / grain) * grain)
        found[m, _width(random), _width(random)] = None
    return tuple(found)


def _width(random: Random) -> int:
    """A width that is widely used, or any multiple of ``TILE`` between the least and the most of those."""
    if random.random() < 0.5:
        return random.choice(COLUMNS)
    return round(TILE * 2 ** random.uniform(log2(COLUMNS[0] / TILE), log2(COLUMNS[-1] / TILE)) / TILE) * TILE


def _ticks(scenario: OpCase, choices: Sequence[OpChoice]) -> FloatArray:
    """Return the estimated time of each choice in us, infinite where it does not fit."""
    legal = tuple(choice for choice in choices if reject_choice(scenario, choice) is None)
    times = {one.choice: one.best_us for one in predicted_candidates(scenario, legal)}
    return np.array([times.get(choice, np.inf) if choice in legal else np.inf for choice in choices])


def _machine(request: Request, scenario: OpCase) -> MachineRates:
    large = scenario_of(replace(request, m=8192 * scenario.num_ranks, n=4096, k=4096)).case
    gemm, whole = scenario.shape.gemm, large.shape.moved
    assert gemm is not None and whole is not None, "distilled checks this"
    ticks = costs_of(large, default_engine(large.system)).moved[-1]
    return rates_of(scenario, gemm, ticks / TICKS_PER_SECOND / whole.num_bytes)


SCHEMA = "magus-rule/1"


def rule_python(rule: DistilledRule) -> str:
    """Return a module with one function, ``schedule(m, n, k)``, that needs nothing."""
    return "\n".join(_lines(rule)) + "\n"


def _lines(rule: DistilledRule) -> Iterator[str]:
    machine, request = rule.machine, rule.request
    yield f'"""Which schedule for {request.pattern} of {request.dtype} on {machine.ranks} x {machine.gpu}.'
    yield ""
    yield f"Distilled by Magus {__version__} from estimated times of {rule.shapes} shapes."
    yield summary(rule)
    yield '"""\n\n'
    yield "def schedule(m, n, k):"
    yield '    """Return the schedule for the GEMM [m, k] x [k, n] of one rank."""'
    moved = "k" if machine.consumes else "n"
    size = machine.bytes_per_element
    moved_s, gemm_s = f"m * {moved} * {size * machine.s_per_byte:.6e}", f"2.0 * m * n * k / {machine.flops_per_s:.6e}"
    formulas = {
        "comm_over_gemm": f"{moved_s} / ({gemm_s})",
        "waves": f"m * n / {TILE * TILE * machine.sms}.0",
        "rows_per_rank": f"m / {machine.ranks}.0",
        "m_over_k": "m / float(k)",
        "flops_per_byte": f"2.0 * m * n * k / ({size} * (m * k + k * n + m * n))",
        "over_balance": f"2.0 * m * n * k / ({size} * (m * k + k * n + m * n)) / {machine.balance:.6g}",
        "traffic_bytes": f"{size} * (m * k + k * n + m * n)",
    }
    used = set(_features(rule.root))
    for name in FEATURES:
        if FEATURES.index(name) in used:
            yield f"    {name} = {formulas[name]}"
    yield from _branches(rule, rule.root, 1)


def _features(node: TreeNode) -> Iterator[int]:
    if node.below is not None and node.above is not None:
        yield node.feature
        yield from _features(node.below)
        yield from _features(node.above)


def _branches(rule: DistilledRule, node: TreeNode, depth: int) -> Iterator[str]:
    indent = "    " * depth
    if node.below is None or node.above is None:
        yield f'{indent}return "{rule.schedules[node.pick]}"'
        return
    yield f"{indent}if {FEATURES[node.feature]} <= {node.threshold:.6g}:"
    yield from _branches(rule, node.below, depth + 1)
    yield from _branches(rule, node.above, depth)  # behind a branch that returned


def rule_document(rule: DistilledRule) -> JsonObject:
    """Return the rule as JSON, with the constants of its ratios."""
    machine, request = rule.machine, rule.request
    return {
        "schema": SCHEMA,
        "magus": __version__,
        "pattern": request.pattern,
        "dtype": request.dtype,
        "gpu": machine.gpu,
        "ranks": machine.ranks,
        "seconds_per_byte": machine.s_per_byte,
        "flops_per_s": machine.flops_per_s,
        "sms": machine.sms,
        "flops_per_byte": machine.balance,
        "moved": "input" if machine.consumes else "output",
        "fitted": rule.shapes,
        "tested": rule.tested,
        "exact": rule.exact,
        "loss_when_wrong": rule.loss_when_wrong,
        "loss": rule.loss,
        "loss_of_best_fixed": rule.fixed_loss,
        "tree": _node_document(rule, rule.root),
    }


def _node_document(rule: DistilledRule, node: TreeNode) -> JsonObject:
    if node.below is None or node.above is None:
        return {"schedule": rule.schedules[node.pick]}
    return {
        "feature": FEATURES[node.feature],
        "at_most": node.threshold,
        "then": _node_document(rule, node.below),
        "else": _node_document(rule, node.above),
    }


def summary(rule: DistilledRule) -> str:
    """Return how good the rule is, in two sentences."""
    among, wrong = f"the best of {len(rule.schedules)} schedules in {rule.exact:.0%}", f"{rule.loss_when_wrong:.1%}"
    return (
        f"On {rule.tested} shapes that it was not fitted to, its pick is {among},\n"
        f"and {wrong} slower where it is not. It loses {rule.loss:.1%} on the mean; the best single schedule "
        f"{rule.fixed_loss:.0%}."
    )
