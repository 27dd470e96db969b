"""Whether a template can serve its peers in another order, and hold less than all of what it gathers."""

from ..codes import Code
from ..ir import Kernels, Pattern, PeerOrder, Rejection
from .base import Template, TemplateInput

GATHERS = (Pattern.AG_GEMM, Pattern.A2A_GEMM)


def reject_serving(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why the order or the depth of ``problem`` cannot be; None if they can."""
    return reject_order(template, problem) or reject_depth(template, problem)


def reject_order(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why peers cannot be served in this order; None if they can."""
    order = problem.order
    if order is PeerOrder.ROTATED:
        return None
    if not template.has_order:
        return _rejection(f"{template.name} serves its peers in one order", "leave order out")
    if order.by_size and not problem.uneven:
        hint = f"order={order.value} is for an all_to_all with rows=[...]"
        return _rejection(f"order {order.value} goes by sizes, and all transfers are alike", hint)
    return None


def reject_depth(template: Template, problem: TemplateInput) -> Rejection | None:
    """Why not all that is gathered may be held; None if that is possible or not asked for.

    Only a get can wait for the kernel that frees its buffer: all waits are local to a rank, and a put is issued by
    another.
    """
    if not problem.depth:
        return None
    if problem.pattern not in GATHERS:
        return _rejection(f"{problem.pattern.value} holds nothing that is gathered for a kernel", "leave depth out")
    if not template.has_depth:
        return _rejection(f"{template.name} holds all that it gathers", "leave depth out")
    if not problem.gets:
        return _rejection("a put cannot wait until the buffer at its destination is free", "say transfer=get")
    if problem.tactics.kernel is Kernels.PERSISTENT and problem.streams > 1:
        return _rejection(
            "persistent kernels of several streams run one after the other, and the first waits for all", "streams=1"
        )
    if problem.uneven:
        return _rejection(
            "pieces of an uneven all_to_all differ in size, and none fits where another was", "leave depth out"
        )
    return None


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS513, message, hint)
