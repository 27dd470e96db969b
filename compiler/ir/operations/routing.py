"""``dispatch(x, experts=256, top=8)`` and ``combine(y)``: rows go to the experts of all ranks and come back, in graphs.

Unless a law is said (``routing_laws.py``), every expert gets as many rows, to one; of fewer rows than a rank has
experts some get none. All ranks are taken to be as the one with most. A row goes once to each rank that has one of its
experts, as expert libraries send it (DeepSeek DeepEP, ``Buffer.dispatch``): to so many ranks as ``top`` experts drawn
from all lie on, on average. With ``nodes=4`` its experts lie in so many nodes (DeepSeek-V3, arXiv 2412.19437, section
2.1.2): it crosses the network once for each. That it is passed on inside a node, at the speed of the links there, is
left out.

Where all ranks hold all rows, as in tensor parallelism or behind an all_gather, a dispatch sends nothing: each rank
picks the rows of its own experts, and a combine leaves terms of a sum, for a reduce_scatter or an all_reduce, as vLLM
and SGLang do by default. With ``ep=1`` each rank has a part of the columns of every expert, and picks all.

Each is several ops. What a dispatch brings is dealt to the experts by a row-wise kernel, a row for each; before a
combine another one adds what experts of one rank made of a row, and behind it a third what ranks did.
"""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, comb

from ...codes import Code
from ..stopping import Rejection
from ..tensors import Pattern, Shard, Tensor
from .base import (
    CallArgument,
    CallArgumentKind,
    CallResult,
    CollectiveOperation,
    Exchange,
    KernelOperation,
    OperationCall,
    OperationError,
    Routing,
    check_blocks,
    check_rows,
    lone_tensors,
    mismatch,
    not_simulated,
)
from .routing_laws import UNIFORM, RoutingLaw, evenly, placed, ranks_reached
from .row_wise import RowWiseShape

TOKENS = "tokens"
"""How many rows of all ranks go to experts, an argument that no text says: the others only fill ranks up."""

GREEDY, IN_ORDER = "greedy", "in_order"
"""Where experts lie: packed by their rows, or one after the other."""


def for_experts(routing: Routing, first: int, taken: int) -> Routing:
    """The routing to so many experts of each rank alone, from the first on: rows go where one of theirs is there.

    Of rows that go to some nodes the experts are taken to lie in those evenly.

    >>> whole = Routing(512, experts=32, top=4, sent=1768, dealt=(512,) * 4, ranks=8, home=1768, tokens=4096)
    >>> [for_experts(whole, 0, taken).sent for taken in (1, 2, 4)]
    [512, 976, 1768]
    """
    ranks, experts, top, nodes = routing.ranks, routing.experts, routing.top, min(routing.nodes, routing.top)
    if nodes:
        left = experts - taken * ranks
        copies = nodes * (1 - Fraction(comb(left, ceil(top / nodes)), comb(experts, ceil(top / nodes))))
        reaches = copies / ranks, copies / ranks
    else:
        dealt = routing.tokens, routing.replicas, routing.greedy
        found = placed(routing.law, ranks, experts, top, *dealt, group=(first, taken))
        reaches = found.reach, found.reached / ranks
    sent, home = (ceil(routing.rows * each) * ranks for each in reaches)
    return replace(routing, dealt=routing.dealt[first : first + taken], sent=sent, home=home)


def routing_of(call: OperationCall, rows: int) -> Routing:
    """The routing that a dispatch of ``rows`` rows of a rank says."""
    experts, top, ranks = call.arguments["experts"], call.arguments["top"], call.num_ranks
    nodes, replicas = call.arguments.get("nodes"), call.arguments.get("replicas", 0)
    law, place = call.arguments.get("routing", UNIFORM), call.arguments.get("placed", IN_ORDER)
    tokens = min(call.arguments.get(TOKENS, rows * ranks), rows * ranks)
    _check_experts(experts, top, ranks, replicas)
    _check_counts(law, experts, tokens, top)
    if place not in (GREEDY, IN_ORDER):
        message, hint = f"unknown place '{place[:64]}' of experts", f"placed={GREEDY} or placed={IN_ORDER}"
        raise OperationError(Rejection(Code.MGS204, message, hint))
    found = placed(law, ranks, experts, top, tokens, replicas, place == GREEDY)
    reach, reached = found.reach, found.reached
    if nodes is not None:
        if law != UNIFORM or replicas:
            raise mismatch("rows to some nodes are routed uniformly", "leave nodes out, or routing and replicas")
        reached = Fraction(min(nodes, top))
        reach = reached / ranks
    sent, home = (ceil(rows * each) * ranks for each in (reach, reached / ranks))
    by, greedy = call.arguments.get("by", ""), place == GREEDY
    return Routing(rows, experts, top, sent, found.rows, ranks, home, tokens, nodes or 0, by, law, replicas, greedy)


def _check_experts(experts: int, top: int, ranks: int, replicas: int) -> None:
    if (experts + replicas) % ranks:
        what = f"{experts} experts" + (f" and {replicas} replicas" if replicas else "")
        fewest = -(-(experts + replicas) // ranks) * ranks
        hint = f"replicas={fewest - experts}" if fewest > experts and replicas else f"experts={fewest}"
        message = f"{what} do not divide among {ranks} ranks"
        message += f": {ranks - experts - replicas} would have none" if experts + replicas < ranks else ""
        raise OperationError(Rejection(Code.MGS304, message, hint))
    _check_top(top, experts)
    if replicas > experts * (ranks - 1):
        raise mismatch(f"{experts} experts have at most {experts * (ranks - 1)} replicas, one on each other rank")


def _check_top(top: int, experts: int) -> None:
    if top > experts:
        raise mismatch(f"a row goes to {top} of {experts} experts", f"top is at most {experts}")


def _check_counts(law: RoutingLaw, experts: int, tokens: int, top: int) -> None:
    """Reject counts that are not those of these rows."""
    counts = law.counts
    if not counts:
        return
    if len(counts) != experts:
        raise mismatch(f"routing has {len(counts)} counts, and there are {experts} experts", "one for each expert")
    if not any(counts):
        raise mismatch("routing sends no rows to any expert", "counts of rows, of which some are above 0")
    used = sum(count > 0 for count in counts)
    if used < top:
        message = f"{used} of {experts} experts {'have' if used > 1 else 'has'} rows, and a row goes to {top} experts"
        raise mismatch(message, f"counts above 0 of {top} experts or more")
    if law.name == "loads" and sum(counts) != tokens * top:
        message = f"the loads are {sum(counts)} rows together, and {tokens} rows go to {top} experts each"
        raise mismatch(message, f"{tokens * top} together, or histogram(...), whose counts are shares")
    if law.name == "loads" and max(counts) > tokens:
        raise mismatch(f"an expert has {max(counts)} rows of {tokens}", "a row goes to an expert once")


def _send(call: OperationCall) -> CallResult:
    (tensor,), routing = call.tensors, _routing(call, call.tensors[0])
    moved = replace(tensor, rows=routing.sent, shard=Shard.NONE)
    result = replace(tensor, name=call.result, rows=routing.sent * call.num_ranks)
    return CallResult(result, moved=moved, exchange=Exchange(routing=routing))


def _routing(call: OperationCall, tensor: Tensor) -> Routing:
    if tensor.shard is not Shard.ROWS:
        message = f"{call.operation.name} takes the rows of each rank, but {tensor.name} is {tensor.layout}"
        raise mismatch(
            message, "declare it, or the tensor that it is made of, with 'shard rows': tensor ... shard rows"
        )
    if call.operation is not SEND:
        return _known(call)
    check_rows(call, tensor, "each rank has as many rows")
    return routing_of(call, tensor.rows // call.num_ranks)


def _known(call: OperationCall) -> Routing:
    if call.exchange.routing is None:
        raise mismatch(
            "combine brings back what a dispatch has sent", "z = combine(f(dispatch(x, experts=256, top=8)))"
        )
    return call.exchange.routing


def _deal(call: OperationCall, after: str) -> CallResult:
    """A row-wise kernel that makes rows of one kind from those of another."""
    (tensor,), routing = lone_tensors(call), _known(call)
    dealt, sent = sum(routing.dealt), routing.sent
    before, rows = {"expand": (sent, dealt), "collapse": (dealt, sent), "merge": (sent, routing.rows)}[after]
    if tensor.rows != before:
        message = f"{tensor.name} has {tensor.rows} rows of a rank, and routing gave it {before}"
        raise mismatch(message, "combine takes as many rows as its dispatch dealt to experts")
    dtype = call.arguments.get("type", tensor.dtype)
    check_blocks(tensor.name, dtype, tensor.cols)
    output = replace(tensor, name=call.result, rows=rows, dtype=dtype)
    # What is merged came from all ranks, and not from the hottest alone.
    read = tensor.dtype.bytes_of(routing.home * tensor.cols) if after == "merge" else tensor.num_bytes
    return CallResult(output, RowWiseShape(rows * tensor.cols, 1, dtype, read))


def _pick(call: OperationCall) -> CallResult:
    """A row-wise kernel that makes of rows which every rank holds those of its own experts."""
    (tensor,) = lone_tensors(call)
    experts, top, ranks = call.arguments["experts"], call.arguments["top"], call.num_ranks
    groups = call.arguments.get("ep", ranks)
    if groups not in (1, ranks):
        raise not_simulated(f"experts in {groups} groups of {ranks} ranks are not simulated", f"ep=1 or ep={ranks}")
    if experts % groups:
        raise OperationError(Rejection(Code.MGS304, f"{experts} experts do not divide among {groups} ranks"))
    _check_top(top, experts)
    dealt = ceil(Fraction(tensor.rows * top, groups))
    own = evenly(dealt, experts // groups)
    read = min(tensor.rows, dealt, ceil(tensor.rows * ranks_reached(groups, experts, top) / groups))
    read_bytes = tensor.dtype.bytes_of(read * tensor.cols)
    shape = RowWiseShape(dealt * tensor.cols, 1, tensor.dtype, read_bytes, (tensor.rows, top))
    routing = Routing(tensor.rows, experts, top, 0, own, ranks, 0, tensor.rows)
    layout = Shard.NONE if groups == 1 else Shard.ROWS
    result = replace(tensor, name=call.result, rows=dealt)
    return CallResult(result, shape, exchange=Exchange(routing=routing), layout=layout)


def _give(call: OperationCall) -> CallResult:
    """A row-wise kernel that adds what experts of one rank made of each row: terms of a sum, but of all experts."""
    (tensor,), routing = lone_tensors(call), _known(call)
    if tensor.rows != sum(routing.dealt):
        message = f"{tensor.name} has {tensor.rows} rows of a rank, and routing gave it {sum(routing.dealt)}"
        raise mismatch(message, "combine takes as many rows as its dispatch dealt to experts")
    dtype = call.arguments.get("type", tensor.dtype)
    shape = RowWiseShape(routing.rows * tensor.cols, 1, dtype, tensor.num_bytes)
    output = replace(tensor, name=call.result, rows=routing.rows, dtype=dtype)
    return CallResult(output, shape, partial=routing.taken < routing.experts, layout=Shard.NONE)


def _of_several_calls(call: OperationCall) -> CallResult:
    raise AssertionError(f"{call.operation.name} is written out as the calls that it is made of")


_TYPE = CallArgument("type", CallArgumentKind.TYPE)
_ARGUMENTS = (
    CallArgument("experts", CallArgumentKind.COUNT, required=True),
    CallArgument("top", CallArgumentKind.COUNT, required=True),
    CallArgument("nodes", CallArgumentKind.COUNT),
    CallArgument("by", CallArgumentKind.NAME),
    CallArgument("ep", CallArgumentKind.COUNT),
    CallArgument("routing", CallArgumentKind.ROUTING),
    CallArgument("replicas", CallArgumentKind.COUNT),
    CallArgument("placed", CallArgumentKind.NAME),
)

DISPATCH = KernelOperation(
    name="dispatch",
    example="dispatch(x, experts=256, top=8, type=fp8)",
    infer=_of_several_calls,
    arguments=(*_ARGUMENTS, _TYPE),
)
COMBINE = KernelOperation(name="combine", example="combine(y)", infer=_of_several_calls, arguments=(_TYPE,))

SEND = CollectiveOperation(
    name="dispatch", example=DISPATCH.example, infer=_send, arguments=_ARGUMENTS, alone=Pattern.ALL_TO_ALL
)
SEND_BACK = CollectiveOperation(name="combine", example=COMBINE.example, infer=_send, alone=Pattern.ALL_TO_ALL)
EXPAND, COLLAPSE, MERGE = (
    KernelOperation(name=name, example="", infer=partial(_deal, after=name), arguments=(_TYPE,))
    for name in ("expand", "collapse", "merge")
)
PICK = KernelOperation(name="pick", example=DISPATCH.example, infer=_pick, arguments=_ARGUMENTS)
GIVE = KernelOperation(name="give", example=COMBINE.example, infer=_give, arguments=(_TYPE,))
