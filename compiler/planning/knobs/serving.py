"""In which order a rank serves its peers, and how much of what is gathered it holds."""

from ...codes import Code
from ...ir import Kernels, Pattern, PeerOrder, Rejection
from .base import CountValues, Knob, Rule, ScheduleRequest, WordValues

# Patterns whose kernels read what was gathered, and free it.
GATHERS = (Pattern.AG_GEMM, Pattern.A2A_GEMM)


def _reject_order(request: ScheduleRequest) -> Rejection | None:
    order = request.choice.order
    if order is PeerOrder.ROTATED or request.template.has("order"):
        return None
    return _rejection(f"{request.template.name} serves its peers in one order", "leave order out")


def _reject_sizes(request: ScheduleRequest) -> Rejection | None:
    order = request.choice.order
    if not order.by_size or request.problem.uneven:
        return None
    hint = f"order={order.value} is for an all_to_all with rows=[...]"
    return _rejection(f"order {order.value} goes by sizes, and all transfers are alike", hint)


ORDER = Knob(
    "order",
    "order",
    WordValues(PeerOrder),
    PeerOrder.ROTATED,
    rules=(Rule(("schedules", "order"), _reject_order), Rule(("order",), _reject_sizes)),
    optional=True,
    of_transfers=True,
)


def _reject_depth(request: ScheduleRequest) -> Rejection | None:
    """Only a get can wait for the kernel that frees its buffer.

    All waits are local to a rank, and a put is issued by another.
    """
    choice, problem = request.choice, request.problem
    if not choice.depth:
        return None
    if problem.pattern not in GATHERS:
        return _rejection(f"{problem.pattern.value} holds nothing that is gathered for a kernel", "leave depth out")
    if not request.template.has("depth"):
        return _rejection(f"{choice.template} holds all that it gathers", "leave depth out")
    if not problem.gets:
        return _rejection("a put cannot wait until the buffer at its destination is free", "say transfer=get")
    if choice.tactics.kernel is Kernels.PERSISTENT and choice.streams > 1:
        why = "persistent kernels of several streams run one after the other, and the first waits for all"
        return _rejection(why, "streams=1")
    if problem.uneven:
        why = "pieces of an uneven all_to_all differ in size, and none fits where another was"
        return _rejection(why, "leave depth out")
    return None


DEPTH = Knob(
    "depth",
    "depth",
    CountValues(opened=(1, 2, 4)),
    0,
    rules=(Rule(("schedules", "streams", "transfer", "kernel", "depth"), _reject_depth),),
    optional=True,
    of_transfers=True,
)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS513, message, hint)
