"""How many transfers schedules make over all ranks, in closed form: the tables of docs/schedules.md, written again."""

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import Pattern
from magus.compiler.templates import BY_NAME
from magus.compiler.templates.collective import collective_in


def transfers_of(algorithm: str, kind: Pattern, n: int, p: int, node: int = 0) -> int:
    """Of one collective by an algorithm among ``n`` ranks with ``p`` pieces per shard, ``node`` of them in a node."""
    twice = 2 if kind is Pattern.ALL_REDUCE else 1
    nodes = n // node if node else 1
    match algorithm, kind:
        case _, Pattern.SEND_RECV:
            return n * p
        case "nvls", _:
            return twice * n * p
        case "one_shot", _:
            return n * n * (n - 1) * p
        case "double_ring", Pattern.ALL_TO_ALL:
            return n * (n * n // 4) * p
        case "hierarchical", _:
            return twice * n * ((nodes - 1) + nodes * (node - 1)) * p
        case _:
            return twice * n * (n - 1) * p


def usual_algorithm(template: str, kind: Pattern) -> str:
    """What an empty algorithm means."""
    usual = BY_NAME[template].default_algorithm or "direct"
    return usual if kind in ALGORITHM_BY_NAME[usual].kinds else "direct"


def transfers_in(template: str, algorithm: str, pattern: Pattern, n: int, p: int, node: int = 0) -> int:
    """Of a schedule; templates with transfers of their own make those of the direct exchange."""
    kind = collective_in(pattern)
    if kind is None:
        return 0
    return transfers_of(algorithm or usual_algorithm(template, kind), kind, n, p, node)
