"""Why a template cannot schedule a problem that its pattern and its pieces would allow."""

from dataclasses import replace

from ..codes import Code
from ..collectives import ALGORITHM_BY_NAME
from ..ir import Adds, Kernels, Rejection
from .base import Cut, Template, TemplateInput
from .collective import reject_algorithm


def reject_template(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why ``template`` cannot schedule ``problem``, None if it can."""
    asked = problem.algorithm
    if asked and not template.has_algorithm:
        return _rejection(f"{template.name} has its own transfers and takes no algorithm", "serial takes one")
    if asked and asked not in ALGORITHM_BY_NAME:
        return _rejection(f"there is no algorithm '{asked}'", f"algorithms are {', '.join(ALGORITHM_BY_NAME)}")
    if problem.gets and problem.pattern.produces:
        what = f"partial sums of {problem.pattern.value}" if problem.pattern.sums else "rows for others"
        put = f"{what} are put by the rank that computes them"
        return _rejection(put, "a get cannot know when they are there; leave transfer=get out")
    if problem.waves > 1 or problem.sums > 1:
        apart = _reject_waves(template, problem)
        if apart is not None:
            return apart
    uncut = _reject_cut(template, problem)
    if uncut is not None:
        return uncut
    return reject_algorithm(problem, template.default_algorithm) if template.default_algorithm else None


def _reject_waves(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why kernels cannot take several waves, or sums have several streams; None if they can."""
    if not template.has_waves:
        return _rejection(f"{template.name} is not told its waves, nor streams for sums", "pipelined takes them")
    if problem.waves > 1 and Adds.BLOCKS in (problem.cutting.adds, problem.then and problem.then.cutting.adds):
        return _rejection(
            "waves are of different rows, and blocks lie side by side at the same ones", "leave waves out"
        )
    if problem.sums > 1 and not problem.pattern.sums:
        return _rejection(f"{problem.pattern.value} sums nothing", "leave sums out")
    if problem.sums > 1 and problem.tactics.kernel is Kernels.PERSISTENT:
        # holding.py: a sum that looks for what another passes on may have the SMs that this one needs.
        return _rejection(
            "sums that follow a persistent kernel wait with SMs held, those of one stream in order", "sums=1"
        )
    return None


def _reject_cut(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why the kernel cannot be cut as ``template`` does; None if it can."""
    if problem.then is not None:
        return _reject_cut(template, replace(problem, then=None)) or _reject_cut(template, problem.then)
    if not template.overlaps or template.cut is Cut.COLUMNS:
        return None
    if template.has_parts and problem.cutting.adds is Adds.BLOCKS:
        return _rejection(
            "parts of different sizes do not lie side by side", "hetero_fused_1d takes the same rows of all blocks"
        )
    if not problem.cutting.by_rows:
        why = f"{template.name} cuts rows, and a query that comes by all_to_all needs the keys of all rows"
        return _rejection(why, "uniform_fused_2d cuts heads")
    if problem.adds_ranks and not template.takes_all and problem.streams > 1:
        what = "parts of the keys" if problem.adds_rows else "blocks side by side"
        return _rejection(f"kernels over {what} add to one output, one after the other", "streams=1")
    return None


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS511, message, hint)
