"""Run a program, folded as far as its ranks are alike, and report how far that was."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...compiler.ir import ShouldStop, StepsDone
from ..cores.endings import units_delivered
from ..cores.engine import run
from ..lower.plan import Lowered
from ..program.arrays import NONE, BoolArray, Int64Array, dependencies, take_rows
from ..program.program import NEVER, Program, Run, RunOutcome
from .refine import Classes, Refusal, asymmetry, by_local_id, detect
from .verify import Condition, FoldError, Places, distinct, verify

__all__ = ["Condition", "FoldError", "Folded", "expand", "quotient"]


@dataclass(frozen=True, slots=True)
class Folded:
    """``program`` has one member of each class: server, op or flow number ``class_of_...`` stands for the whole's.

    It is no longer laid out by rank: each server and pool is declared for itself, under the member's name and rank, and
    ``op_rank`` is the rank of the member.
    """

    program: Program
    whole: Program  # that was folded
    class_of_op: Int64Array  # [O] of the whole
    class_of_flow: Int64Array  # [F] of the whole
    class_of_server: Int64Array  # [S] of the whole
    class_of_hop: Int64Array  # [H] of the whole

    @property
    def num_rank_classes(self) -> int:
        """Ranks of which any op is simulated: 1 if all do the same, all of them if no two do."""
        return len(np.unique(self.program.op_rank))


def quotient(program: Program, classes: Classes) -> Folded:
    """Check that ``classes`` is a covering of ``program`` and take one member of each.

    Raises
    ------
    FoldError
        If it is none: folding could change times.
    """
    places = Places.of(program)
    # An op class queues where the first of its members does, for the reason given in ``_with_hops``.
    ops, class_of_op = _members(classes.op, program.num_ops, program.op_rank, program.op_local_id)
    servers, class_of_server = _members(classes.server, program.num_servers)
    pools, class_of_pool = _members(classes.pool, len(program.pool_slots))
    covering = verify(program, places, ops[class_of_op], servers[class_of_server], pools[class_of_pool])
    flows = take_rows(places.op_flow_ptr, ops)[1]
    small = replace(
        program,
        ranks_simulated=1,
        server_names=tuple(program.server_name(server) for server in servers.tolist()),
        service_ticks=program.service_ticks[servers],
        latency_ticks=program.latency_ticks[servers],
        pool_names=tuple(program.pool_name(pool) for pool in pools.tolist()),
        pool_slots=program.pool_slots[pools],
    )
    small = _with_ops(small, places, ops, class_of_op, class_of_pool)
    small = _with_stages(small, ops, flows)
    small, class_of_hop = _with_hops(small, flows, covering.like_hop, class_of_server)
    small = _with_buffers(small, program, servers, class_of_hop)
    class_of_flow = _numbers(flows, program.num_flows)[covering.like_flow]
    return Folded(small, program, class_of_op, class_of_flow, class_of_server, class_of_hop)


def expand(folded: Folded, run: Run) -> Run:
    """Expand the run of ``folded.program`` to all ops, flows and servers of the program that was folded.

    ``line_hops`` are those represented, of flows that were delivered: all there are, unless the run was stopped early.
    ``windows`` and ``core`` stay what it took to simulate one of each.
    """
    op_done, flow_last = run.op_done[folded.class_of_op], run.flow_last[folded.class_of_flow]
    op_polls = run.op_polls[folded.class_of_op]
    stuck = np.flatnonzero(op_done == NEVER).tolist() if run.outcome is RunOutcome.DEADLOCK else []
    return replace(
        run,
        op_ready=run.op_ready[folded.class_of_op],
        op_start=run.op_start[folded.class_of_op],
        op_done=op_done,
        op_polls=op_polls,
        flow_last=flow_last,
        server_free=run.server_free[folded.class_of_server],
        server_blocked=_blocked(folded, run),
        server_busy_ticks=run.server_busy_ticks[folded.class_of_server],
        line_hops=int((units_delivered(folded.whole, flow_last, op_polls) * folded.whole.flow_num_hops).sum()),
        stuck=tuple(stuck),
        hop_wait_ticks=None if run.hop_wait_ticks is None else run.hop_wait_ticks[folded.class_of_hop],
    )


def _blocked(folded: Folded, run: Run) -> Int64Array:
    """[S] of the whole: where a server is blocked, the hop at it that is like the one at its class."""
    is_head = np.zeros(folded.program.num_hops, np.bool_)
    is_head[run.server_blocked[run.server_blocked != NONE]] = True
    hops = np.flatnonzero(is_head[folded.class_of_hop])
    blocked = np.full(folded.whole.num_servers, NONE, np.int64)
    blocked[folded.whole.hop_server[hops]] = hops
    return blocked


def _members(classes: Int64Array, count: int, *keys: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The member that stands for each class [C], in ascending order, and the number of each thing's class [things].

    It is the least one by ``keys``, of which the last counts first; then by number.
    """
    if classes.shape != (count,):
        raise ValueError(f"a partition of {count} things assigns classes to {classes.shape}")
    by_class = np.lexsort((*keys, classes))  # stable, so the number of a thing counts last
    ordered = classes[by_class]
    first = np.ones(count, np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    members = by_class[first]
    order = np.argsort(members)
    class_of = np.empty(count, np.int64)
    class_of[by_class] = _numbers(order, len(order))[np.cumsum(first) - 1]
    return members[order], class_of


def _numbers(kept: Int64Array, count: int) -> Int64Array:
    """[count + 1] new number of each of ``kept``; NONE for the others, and for NONE itself, which is the last."""
    numbers = np.full(count + 1, NONE, np.int64)
    numbers[kept] = np.arange(len(kept))
    return numbers


def _with_ops(
    program: Program, places: Places, ops: Int64Array, class_of_op: Int64Array, class_of_pool: Int64Array
) -> Program:
    """``program`` with ``ops`` alone, each waiting once for every class it waited for."""
    waits = _edges_between(places.wait_ptr, places.waits, ops, class_of_op)
    flags = _edges_between(places.flag_ptr, places.flags, ops, class_of_op)
    num_waits, next_ptr, next_ops = dependencies(*waits, len(ops))
    num_flags, sets_ptr, sets = dependencies(*flags, len(ops))
    return replace(
        program,
        op_kind=program.op_kind[ops],
        op_label_idx=program.op_label_idx[ops],
        op_rank=program.op_rank[ops],
        op_local_id=program.op_local_id[ops],
        op_pool=np.append(class_of_pool, NONE)[program.op_pool[ops]],  # NONE is -1, the last
        op_setup_ticks=program.op_setup_ticks[ops],
        op_release_ticks=program.op_release_ticks[ops],
        op_priority=program.op_priority[ops],
        op_num_waits=num_waits,
        op_next_ptr=next_ptr,
        op_next=next_ops,
        op_num_flags=num_flags,
        op_sets_ptr=sets_ptr,
        op_sets=sets,
    )


def _edges_between(
    pointers: Int64Array, entries: Int64Array, ops: Int64Array, class_of_op: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The entries in the rows of ``ops``, of a table held as pointers, once each: (class of the entry, row)."""
    kept_ptr, kept = take_rows(pointers, ops)
    rows = np.repeat(np.arange(len(ops)), np.diff(kept_ptr))
    row, named = np.divmod(distinct(rows * len(ops) + class_of_op[entries[kept]]), max(1, len(ops)))
    return named, row


def _with_stages(program: Program, ops: Int64Array, flows: Int64Array) -> Program:
    """``program`` with the stages of ``ops`` alone and their ``flows``."""
    op_stage_ptr, stages = take_rows(program.op_stage_ptr, ops)
    return replace(
        program,
        op_stage_ptr=op_stage_ptr,
        stage_op=np.repeat(np.arange(len(ops)), np.diff(op_stage_ptr)),
        stage_hold_ticks=program.stage_hold_ticks[stages],
        stage_polls=program.stage_polls[stages],
        stage_flow_ptr=take_rows(program.stage_flow_ptr, stages)[0],
        flow_stage=_numbers(stages, program.num_stages)[program.flow_stage[flows]],
        flow_units=program.flow_units[flows],
        flow_gap_ticks=program.flow_gap_ticks[flows],
        flow_offset_ticks=program.flow_offset_ticks[flows],
        flow_traffic=program.flow_traffic[flows],
        flow_window_units=program.flow_window_units[flows],
        flow_num_hops=program.flow_num_hops[flows],
    )


def _with_hops(
    program: Program, flows: Int64Array, like_hop: Int64Array, class_of_server: Int64Array
) -> tuple[Program, Int64Array]:
    """``program`` with the hops of ``flows`` alone, numbered in the order in which ties are served; [H] those numbers.

    A class takes its turn with the first of its members. Members of two classes at one server then stand as the classes
    do: they stand so at every server, so wherever the first member of the later class is, one of the earlier is before.
    """
    like, first = np.unique(like_hop, return_index=True)  # [hops kept] and the first of each class
    hops = like[np.argsort(first)]
    number = _numbers(hops, program.num_hops)
    kept = replace(
        program,
        flow_first_hop=number[program.flow_first_hop[flows]],
        hop_server=class_of_server[program.hop_server[hops]],
        hop_flow=_numbers(flows, len(program.flow_first_hop))[program.hop_flow[hops]],
        hop_index=program.hop_index[hops],
        hop_next=number[program.hop_next[hops]],
    )
    return kept, number[like_hop]


def _with_buffers(program: Program, whole: Program, servers: Int64Array, class_of_hop: Int64Array) -> Program:
    """``program`` with the buffers behind ``servers``, the members that stand for their classes.

    The hops kept come from several members of a server's class, so their own buffers would not do.
    """
    stands = np.zeros(whole.num_servers, np.bool_)
    stands[servers] = True
    hops = np.flatnonzero(stands[whole.hop_server] & (whole.hop_buffer != NONE))
    buffers, number = np.unique(whole.hop_buffer[hops], return_inverse=True)
    hop_buffer = np.full(program.num_hops, NONE, np.int64)
    hop_buffer[class_of_hop[hops]] = number
    return replace(
        program,
        hop_buffer=hop_buffer,
        buffer_units=whole.buffer_units[buffers],
        buffer_credit_ticks=whole.buffer_credit_ticks[buffers],
    )


@dataclass(frozen=True, slots=True)
class Finished:
    """The run of a program with what it took.

    ``not_alike`` says why more than one rank was simulated, None if one was enough.
    """

    run: Run  # of the program as it was given
    ranks_simulated: int
    line_hops: int  # simulated
    line_hops_represented: int
    not_alike: str | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out; no option changes a time.

    Attributes
    ----------
    fold
        Whether to simulate one rank for all that are alike.
    observe
        Whether to record where units queued, for ``servers`` and ``critical_path`` of the result. It takes more time.
    should_stop
        Asked at least once a second; the run ends once it returns true.
    progress
        Called often with the line-hops that are simulated, without those of what-if runs.
    loads
        Whether the result has the loads of links and memories over time.
    path
        Whether the result has the critical path.
    """

    fold: bool = True
    observe: bool = False
    should_stop: ShouldStop | None = None
    progress: StepsDone | None = None
    loads: bool = True
    path: bool = True


DEFAULT_OPTIONS = RunOptions()


def run_folded(program: Program, options: RunOptions = DEFAULT_OPTIONS) -> Finished:
    """Run ``program``, one rank for all that are alike unless ``options`` say otherwise.

    A program that describes one rank for all is run as it is, one that describes a few is folded further if it can be.

    Raises
    ------
    RunTooLarge
        If the run would take too much time or memory.
    """

    def finish(part: Program) -> Run:
        return run(part, observe=options.observe, should_stop=options.should_stop, progress=options.progress)

    ranks, represented = program.ranks_simulated, program.num_ranks // program.ranks_simulated
    if not options.fold or ranks == 1:
        whole = finish(program)
        reason = "asked not to fold" if ranks == program.num_ranks > 1 else None
        return Finished(whole, ranks, whole.line_hops, whole.line_hops * represented, reason)
    folded = _folded(program)
    if isinstance(folded, Refusal):
        whole = finish(program)
        reason = folded.difference if program.folded else folded.reason
        return Finished(whole, ranks, whole.line_hops, whole.line_hops * represented, reason)
    small = finish(folded.program)
    whole = expand(folded, small)
    not_alike = asymmetry(program) if folded.num_rank_classes > 1 else None
    return Finished(whole, folded.num_rank_classes, small.line_hops, whole.line_hops * represented, not_alike)


def _folded(program: Program) -> Folded | Refusal:
    """Return ``program`` with one rank if all do the same, else with one part of each class that is found."""
    guess = by_local_id(program)
    if guess is not None:
        with suppress(FoldError):
            return quotient(program, guess)
    classes = detect(program)
    return classes if isinstance(classes, Refusal) else quotient(program, classes)


DEPTHS = (1, 2)
"""Over how many of the layers behind it a layer may last; one more pair of layers must then have the same period."""

PERIODIC_LAYERS = DEPTHS[0] + 3
"""Fewer layers show no period: the last one has none behind it."""


def period_ticks(lowered: Lowered, run: Run) -> int | None:
    """By how much each layer comes after the one before; None where that does not show.

    The run must have observed where units queue.
    """
    by_layer: dict[int, list[int]] = {}
    for place, part in enumerate(lowered.plan.parts):
        by_layer.setdefault(part.layer, []).append(place)
    if run.hop_wait_ticks is None or (run.op_done == NEVER).any():
        return None
    traces = [_Trace(lowered, run, by_layer[layer]) for layer in sorted(by_layer)[:-1]]
    for depth in DEPTHS:
        # The last layer has none behind it, and what those before defer into it may run otherwise for that.
        for dropped in range(depth + 1):
            window = traces[max(0, len(traces) - dropped - depth - 2) : len(traces) - dropped]
            closed = all(one.last <= other.first for one, other in zip(window, window[depth + 1 :], strict=False))
            shifts = {one.shift(other) for one, other in pairwise(window)} if closed else set()
            if len(window) == depth + 2 and len(shifts) == 1 and None not in shifts:
                return shifts.pop()
    return None


class _Trace:
    """What happens in one layer, in arrays that are alike for all."""

    def __init__(self, lowered: Lowered, run: Run, parts: Sequence[int]) -> None:
        program = lowered.program
        ops = np.concatenate([np.arange(lowered.ops[part].start, lowered.ops[part].stop) for part in parts])
        flows = _ranges(
            program.stage_flow_ptr[program.op_stage_ptr[ops]], program.stage_flow_ptr[program.op_stage_ptr[ops + 1]]
        )
        used = program.flow_units[flows] > 0
        assert run.hop_wait_ticks is not None, "the run has observed its queues"
        self.times = np.concatenate(
            [run.op_ready[ops], run.op_start[ops], run.op_done[ops], run.flow_last[flows[used]]]
        )
        self.same = np.concatenate([run.op_polls[ops], _waits(program, run.hop_wait_ticks, flows)])
        self.releases = program.op_release_ticks[ops]
        self.first, self.last = int(run.op_start[ops].min()), int(run.op_done[ops].max())

    def shift(self, other: "_Trace") -> int | None:
        """How much later all of ``other`` happens; None if it is not alike."""
        if len(self.times) != len(other.times) or len(self.same) != len(other.same):
            return None
        shifts = other.times - self.times
        issued = other.releases - self.releases
        alike: BoolArray = shifts == shifts[0]
        # A host that runs ahead is further ahead in each layer, or holds up every layer alike.
        ahead = bool((issued == issued[0]).all()) and int(issued[0]) <= int(shifts[0])
        return int(shifts[0]) if ahead and alike.all() and (self.same == other.same).all() else None


def _ranges(starts: Int64Array, stops: Int64Array) -> Int64Array:
    """All numbers from each start to its stop."""
    lengths = stops - starts
    first = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    numbers: Int64Array = first + np.arange(lengths.sum())
    return numbers


def _waits(program: Program, waited: npt.NDArray[np.float64], flows: Int64Array) -> npt.NDArray[np.float64]:
    """How long units of ``flows`` waited at each server of their way, in order."""
    hop, found = program.flow_first_hop[flows], list[npt.NDArray[np.float64]]()
    for _ in range(int(program.flow_num_hops[flows].max(initial=0))):
        there = hop >= 0
        found.append(np.where(there, waited[hop], 0))
        hop = np.where(there, program.hop_next[hop], hop)
    return np.concatenate(found) if found else np.zeros(0)
