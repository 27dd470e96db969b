"""Further cuts of the parts of ``bespoke``: slices of the inner dimension, and bands of the output's columns.

Each is a list for every part, of the sizes in order; an empty one leaves the part whole. Of a GEMM after a collective
the slices are columns of what arrives, so that a copy brings one slice; kernels of later slices add to the output of
the first. Where the kernel comes first a copy takes one band away.
"""

from itertools import accumulate, pairwise, zip_longest

from ..ir import IndexRange, Rejection
from .base import TemplateInput, reject_lists

MAX_KERNELS = 64
"""The most kernels that all parts together may be cut into."""

Cuts = tuple[tuple[int, ...], ...]
"""[part][piece] sizes, none where a part is whole; without any list all parts are."""


def pieces_of(cuts: Cuts, part: int, whole: int) -> tuple[IndexRange, ...]:
    """The pieces into which ``cuts`` divides the size ``whole`` in the part of that index."""
    sizes = (cuts[part] if cuts else ()) or (whole,)
    return tuple(IndexRange(low, high) for low, high in pairwise(accumulate(sizes, initial=0)))


def spelled_cuts(cuts: Cuts, num_parts: int) -> Cuts:
    """Return ``cuts`` with a list for every part."""
    return cuts or ((),) * num_parts


def shortened_cuts(cuts: Cuts) -> Cuts:
    """Return ``cuts``, empty where every part is whole."""
    return cuts if any(cuts) else ()


def reject_cuts(problem: TemplateInput) -> Rejection | None:
    """Why the slices and columns of ``problem`` are illegal, None if they divide their dimensions."""
    heads = problem.cutting.head > 1
    if heads and problem.pattern.consumes and problem.columns:
        return reject_lists("the heads of attention are columns of what arrives", "say slices and not columns")
    for name, cuts, whole, step in (
        ("slices", problem.slices, problem.inner, problem.cutting.column_step),
        ("columns", problem.columns, problem.output_cols, problem.cutting.column_step if heads else 1),
    ):
        if cuts and len(cuts) != len(problem.parts):
            return reject_lists(
                f"{name} are said of {len(cuts)} parts, there are {len(problem.parts)}", "a list for each part"
            )
        for sizes in filter(None, cuts):
            wrong = _reject_sizes(name, sizes, whole, step)
            if wrong is not None:
                return wrong
    kernels = sum(
        max(1, len(s)) * max(1, len(c)) for s, c in zip_longest(problem.slices, problem.columns, fillvalue=())
    )
    if kernels > MAX_KERNELS:
        return reject_lists(f"the parts are cut into {kernels} kernels", f"at most {MAX_KERNELS}")
    return None


def _reject_sizes(name: str, sizes: tuple[int, ...], whole: int, step: int) -> Rejection | None:
    these = f"{name} {list(sizes)}"
    if len(sizes) == 1:
        return reject_lists(f"{these} are one piece", "[] leaves a part whole")
    if min(sizes) < 1 or sum(sizes) != whole:
        return reject_lists(f"{these} do not make up {whole}", "together they are all of it, once, and none is empty")
    if any(size % step for size in sizes):
        return reject_lists(f"{these} are not multiples of {step}", f"for instance [{step}, {whole - step}]")
    return None
