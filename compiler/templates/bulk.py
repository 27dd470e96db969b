"""bulk: a kernel and a collective that need nothing of each other begin together, and share what the machine has.

Per rank one kernel and the transfers of its algorithm in p pieces (the table in docs/schedules.md). It is for the
``||`` patterns alone, and illegal where the algorithm is. So FSDP prefetches the weights of the next layer.
"""

from collections.abc import Iterator

from ..ir import Pattern, Step
from .base import Cut, Template, TemplateInput
from .collective import DEFAULT_ALGORITHM, emit, period
from .serial import kernel


def build(problem: TemplateInput) -> Iterator[Step]:
    """One kernel, and the transfers of the collective beside it."""
    yield from build_rank(problem, 0)


def build_rank(problem: TemplateInput, rank: int) -> Iterator[Step]:
    """Yield the steps of one absolute rank."""
    yield kernel(problem)
    yield from emit(problem, rank).steps


TEMPLATE = Template(
    "bulk",
    Cut.ROWS,
    overlaps=True,
    min_pieces=1,
    patterns=tuple(pattern for pattern in Pattern if pattern.beside),
    build=build,
    build_rank=build_rank,
    period=period,
    knobs=("algorithm",),
    default_algorithm=DEFAULT_ALGORITHM,
    default_pieces=1,
    explored=False,
)
