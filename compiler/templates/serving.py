"""Whether a template can serve its peers in another order, and hold less than all of what it gathers."""

from ..ir import Kernels, Pattern, PeerOrder
from .base import Template, TemplateInput

GATHERS = (Pattern.AG_GEMM, Pattern.A2A_GEMM)

Reason = tuple[str, str]


def why_not_served(template: Template, problem: TemplateInput) -> Reason | None:
    """Why the order or the depth of ``problem`` cannot be, with a hint; None if they can."""
    return why_no_order(template, problem) or why_no_depth(template, problem)


def why_no_order(template: Template, problem: TemplateInput) -> Reason | None:
    """Why peers cannot be served in this order, with a hint; None if they can."""
    order = problem.order
    if order is PeerOrder.ROTATED:
        return None
    if not template.has_order:
        return f"{template.name} serves its peers in one order", "leave order out"
    if order.by_size and not problem.uneven:
        hint = f"order={order.value} is for an all_to_all with rows=[...]"
        return f"order {order.value} goes by sizes, and all transfers are alike", hint
    return None


def why_no_depth(template: Template, problem: TemplateInput) -> Reason | None:
    """Why not all that is gathered may be held, with a hint; None if that is possible or not asked for.

    Only a get can wait for the kernel that frees its buffer: all waits are local to a rank, and a put is issued by
    another.
    """
    if not problem.depth:
        return None
    if problem.pattern not in GATHERS:
        return f"{problem.pattern.value} holds nothing that is gathered for a kernel", "leave depth out"
    if not template.has_depth:
        return f"{template.name} holds all that it gathers", "leave depth out"
    if not problem.gets:
        return "a put cannot wait until the buffer at its destination is free", "say transfer=get"
    if problem.tactics.kernel is Kernels.PERSISTENT and problem.streams > 1:
        return "persistent kernels of several streams run one after the other, and the first waits for all", "streams=1"
    if problem.uneven:
        return "pieces of an uneven all_to_all differ in size, and none fits where another was", "leave depth out"
    return None
