"""Templates made of the algorithms of ``collectives``, one for each, and what other templates need to use one.

A template of an algorithm is for the lone collectives that the algorithm does, and illegal where that refuses: too few
ranks, no nodes, no switch, or a get of what came from others. Its transfers are in the table in docs/schedules.md.
"""

from dataclasses import replace

from ..collectives import ALGORITHM_BY_NAME, ALGORITHMS, Algorithm, CollectiveProblem, Fragment
from ..collectives.base import Ready, at_once
from ..ir import EngineKind, Pattern, Rejection
from .base import Cut, Template, TemplateInput

DEFAULT_ALGORITHM = "direct"

_KIND = {
    Pattern.AG_GEMM: Pattern.ALL_GATHER,
    Pattern.GEMM_BESIDE_AG: Pattern.ALL_GATHER,
    Pattern.GEMM_RS: Pattern.REDUCE_SCATTER,
    Pattern.GEMM_AR: Pattern.ALL_REDUCE,
    Pattern.A2A_GEMM: Pattern.ALL_TO_ALL,
    Pattern.GEMM_A2A: Pattern.ALL_TO_ALL,
    Pattern.GEMM_A2A_GEMM: Pattern.ALL_TO_ALL,
    Pattern.GEMM_BESIDE_A2A: Pattern.ALL_TO_ALL,
}


def collective_in(pattern: Pattern) -> Pattern | None:
    """The lone collective that ``pattern`` is or has as a part, None if it moves nothing."""
    return None if pattern in (Pattern.GEMM, Pattern.KERNEL) else _KIND.get(pattern, pattern)


def usual_algorithm(pattern: Pattern, default: str) -> str:
    """Return the algorithm that an empty one stands for: ``default``, or direct where that does not do ``pattern``."""
    return default if collective_in(pattern) in ALGORITHM_BY_NAME[default].kinds else DEFAULT_ALGORITHM


def algorithm_of(problem: TemplateInput, default: str = DEFAULT_ALGORITHM) -> Algorithm:
    """The algorithm that ``problem`` asks for."""
    return ALGORITHM_BY_NAME[problem.algorithm or usual_algorithm(problem.pattern, default)]


def emit(problem: TemplateInput, ready: Ready = at_once, default: str = DEFAULT_ALGORITHM, stream: int = 0) -> Fragment:
    """The collective of ``problem`` at its rank; ``ready`` says what its blocks wait for, sums run in ``stream``."""
    return algorithm_of(problem, default).build(_collective(problem, ready, stream))


def period(problem: TemplateInput, default: str = DEFAULT_ALGORITHM) -> int:
    """Ranks after which the parts of ranks in the collective repeat: 1 where all have the same."""
    return algorithm_of(problem, default).period(_collective(problem))


def reject_algorithm(problem: TemplateInput, default: str = DEFAULT_ALGORITHM) -> Rejection | None:
    """Why the algorithm cannot do the collective of ``problem``, None if it can or if there is none."""
    rejection = _reject(problem, default)
    if rejection is None:
        return None
    fits = fitting_algorithms(problem)
    return replace(rejection, hint=f"{', '.join(fits)} would do" if fits else "no algorithm does this")


def fitting_algorithms(problem: TemplateInput) -> list[str]:
    """Names of the algorithms that can do the collective of ``problem`` as it is."""
    return [name for name in ALGORITHM_BY_NAME if _reject(replace(problem, algorithm=name), DEFAULT_ALGORITHM) is None]


def _reject(problem: TemplateInput, default: str) -> Rejection | None:
    if collective_in(problem.pattern) is None:
        return None
    return algorithm_of(problem, default).reject(_collective(problem))


def _collective(problem: TemplateInput, ready: Ready = at_once, stream: int = 0) -> CollectiveProblem:
    kind, computed = collective_in(problem.pattern), problem.pattern.produces
    assert kind is not None, "templates ask only where something moves"
    return CollectiveProblem(
        kind,
        problem.num_ranks,
        problem.shard_rows,
        problem.cols,
        problem.pieces,
        problem.tactics.direction,
        # Transfers cannot add to data that a kernel still writes.
        adds=problem.engine is EngineKind.SM and not computed,
        node=problem.node,
        split=problem.split,
        loads=problem.loads,
        ready=ready,
        computed=computed,
        stream=stream,
        rank=problem.rank,
        with_kernel=kind is not problem.pattern,
        engine=problem.engine,
        by_tiles=problem.by_tiles,
        multicast=problem.multicast,
        reduces=problem.reduces,
        grid=problem.grid,
        lanes=problem.lanes,
    )


def _template(algorithm: Algorithm) -> Template:
    name = algorithm.name
    return Template(
        name,
        Cut.ROWS,
        overlaps=False,
        min_pieces=1,
        patterns=algorithm.kinds,
        build=lambda problem: iter(emit(problem, default=name).steps),
        period=lambda problem: period(problem, name),
        default_algorithm=name,
        default_pieces=1,
        knobs=("lanes",) if algorithm.per_layer else (),
        explored=False,
    )


LONE_TEMPLATES: tuple[Template, ...] = tuple(_template(algorithm) for algorithm in ALGORITHMS)
