"""A distilled rule as plain Python, and as JSON, ``magus-rule/1``."""

from collections.abc import Iterator

from ... import __version__
from ...compiler.ir import JsonObject
from ..learned.learner import TreeNode
from .distill import FEATURES, TILE, DistilledRule

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
    yield '"""'
    yield ""
    yield ""
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
        "flops_per_byte": f"2.0 * m * n * k / ({size}.0 * (m * k + k * n + m * n))",
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
