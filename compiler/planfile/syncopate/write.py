"""Write a schedule as a CommPlan of Syncopate: Python that builds it, with a stream for each engine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .... import __version__
from ...ir import (
    Arrival,
    CopyProtocol,
    Direction,
    DType,
    EngineKind,
    EngineMode,
    JsonObject,
    OpCase,
    OpPlan,
    Reach,
    Reduction,
    Tensor,
    TileGroup,
    Transfer,
    all_arrivals,
)
from ..write import ONE_OWNER, SEVERAL, engine_and_tactics, unwritable
from .data import CommKind, Key, first_slots
from .python import OWN
from .read import reason_against

DTYPES = {
    DType.BF16: "torch.bfloat16",
    DType.FP16: "torch.float16",
    DType.FP32: "torch.float32",
    DType.FP8: "torch.float8_e4m3fn",
}
_NAMES = """(
    BufferRegion,
    CommPlan,
    ComputeDependency,
    DevicePlan,
    ReduceOp,
    Transfer,
    TransferOp,
    XferDependency,
)"""
_HEAD = '''"""{title}

Begin with CommGenerator(plan.device_plans), of syncopate.communication.code_gen, and plan_signals().
{result}
"""

import torch
from syncopate.communication.descriptor import {names}

{own} = {said}
'''


def syncopate_text(scenario: OpCase, schedule: OpPlan, times: JsonObject | None = None) -> str:
    """Return the Python that builds the CommPlan; ``times`` stand under ``MAGUS`` with what it was written from.

    Raises
    ------
    ScheduleError
        If there is none, with the reason.
    """
    _check(scenario, schedule)
    writer = _Writer.of(scenario, schedule)
    said = {"version": __version__, "schedule": schedule.expression}
    said |= {**engine_and_tactics(schedule.engine, schedule.tactics), **(times or {})}
    devices = [writer.device(rank) for rank in range(scenario.num_ranks)]
    title = f"{schedule.expression} on {scenario.num_ranks} x {scenario.gpu.name}: a CommPlan of Syncopate."
    head = _HEAD.format(title=title, result=writer.result, names=_NAMES, own=OWN, said=_said(said))
    regions = "".join(f"{name} = {text}\n" for text, name in writer.regions.items())
    return f"{head}{regions}\nplan = CommPlan({{\n{''.join(devices)}}})\n"


def _check(scenario: OpCase, schedule: OpPlan) -> None:
    why, hint = reason_against(scenario)
    if why:
        raise unwritable(why, hint)
    engine, moved = schedule.engine, scenario.shape.moved_tensor
    if engine.mode is not EngineMode.OWN:
        message = f"{engine}: a stream of Syncopate takes its copies one after the other"
        raise unwritable(message, f"engine={engine.kind.value}({engine.count})")
    if schedule.tactics.protocol is not CopyProtocol.SIMPLE:
        raise unwritable("copies of Syncopate carry no flags", "protocol=simple")
    for rank in range(scenario.num_ranks):
        for step in schedule.steps_of(rank):
            if isinstance(step, Transfer):
                _check_transfer(step, scenario, moved)
        sums = {step.name for step in schedule.steps_of(rank) if isinstance(step, Reduction)}
        sent = [step for step in schedule.steps_of(rank) if isinstance(step, Transfer)]
        on = any(step.region.owner != step.peer or not sums.isdisjoint(step.after) for step in sent)
        if sums and (on or not scenario.shape.pattern.reduces):
            message = f"{min(sums)} sums what is sent on, and a copy that is written waits for products, not sums"
            raise unwritable(message, "algorithm direct of a reduce_scatter, or ring by engine=sm(n)")


def _check_transfer(step: Transfer, scenario: OpCase, moved: Tensor) -> None:
    if step.region.also:
        raise unwritable(f"{step.name} moves {SEVERAL}, and a copy has one region", ONE_OWNER)
    if step.reach is not Reach.PEER:
        raise unwritable(f"{step.name} goes to all by a switch, and a copy has one peer", "algorithm direct")
    if step.passes and step.origin:
        raise unwritable(f"{step.name} passes on a block, for which there is no buffer", "algorithm direct")
    if scenario.shape.gemm is not None and step.region.cols.size != moved.cols:
        raise unwritable(f"{step.name} moves some columns of its rows, and kernels take whole rows", "split rows")


@dataclass(slots=True)
class _Writer:
    """The operations of a schedule: their keys by rank and name, and what arrives by rank and signal.

    ``kernels`` are the names of those of each rank, ``regions`` the names of regions by their text.
    """

    scenario: OpCase
    schedule: OpPlan
    moved: Tensor
    keys: Mapping[tuple[int, str], Key]
    arrived: Mapping[tuple[int, str], Arrival]
    kernels: tuple[frozenset[str], ...]
    regions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: OpCase, schedule: OpPlan) -> "_Writer":
        """Deal transfers without a lane to streams in turn, and check that streams do not wait for each other."""
        moved, n = scenario.shape.moved_tensor, scenario.num_ranks
        keys: dict[tuple[int, str], Key] = {}
        for rank in range(n):
            steps = [step for step in schedule.steps_of(rank) if isinstance(step, Transfer)]
            peers = len({step.peer for step in steps})
            width = schedule.engine.count if schedule.engine.kind is EngineKind.DMA else peers
            places = Counter[int]()
            for number, step in enumerate(steps):
                stream = number % width if step.lane is None else step.lane
                keys[rank, step.name] = (rank, stream, places[stream])
                places[stream] += 1
        arrivals = enumerate(all_arrivals(scenario, schedule))
        arrived = {(rank, each.transfer.signal): each for rank, found in arrivals for each in found}
        steps_by_rank = (schedule.steps_of(rank) for rank in range(n))
        kernels = (frozenset(step.name for step in each if isinstance(step, TileGroup)) for each in steps_by_rank)
        writer = cls(scenario, schedule, moved, keys, arrived, tuple(kernels))
        writer._check_waits()
        return writer

    @property
    def result(self) -> str:
        """Where what the plan makes lies."""
        name, rows = self.moved.name, self.moved.rows // self.scenario.num_ranks
        pattern = self.scenario.shape.pattern
        if self._target != name:
            summed = "; a kernel adds them up" if pattern.reduces else ""
            return f"Rows rank * {rows} to (rank + 1) * {rows} of {self._target} are what rank has sent{summed}."
        if pattern.gathers:
            return f"Put rows rank * {rows} to (rank + 1) * {rows} of {name} in place before it runs."
        where = "all of it" if not pattern.reduces else f"its rows rank * {rows} to (rank + 1) * {rows}"
        return f"Copies add in place, so by SMs: {name} holds the terms before, and the sum in {where} after."

    @property
    def _target(self) -> str:
        """The buffer into which copies go: that of the tensor where they go in place."""
        pattern = self.scenario.shape.pattern
        added = any(isinstance(step, Transfer) and step.reduce for step in self.schedule.steps)
        has_own_buffer = pattern.exchanges or (pattern.reduces and not added)
        return f"{self.moved.name}_received" if has_own_buffer else self.moved.name

    def device(self, rank: int) -> str:
        """Return the plan of one rank."""
        n, rows = self.scenario.num_ranks, self.moved.rows // self.scenario.num_ranks
        streams: dict[int, list[str]] = {}
        for step in self.schedule.steps_of(rank):
            if isinstance(step, Transfer):
                streams.setdefault(self.keys[rank, step.name][1], []).append(self._transfer(rank, step))
        if self._target != self.moved.name:
            own = self._region(rank * rows, (rank + 1) * rows)
            waits = self._dependency(rank, own, (), computed=self.scenario.shape.pattern.produces)
            streams.setdefault(0, []).append(self._op(CommKind.LOCAL_COPY, (own, own), rank, waits))
        stream = [f"        [\n{_lines(streams.get(at, ()))}        ],\n" for at in range(1 + max(streams, default=0))]
        gathered = self.scenario.shape.pattern.gathers
        here = self._region(rank * rows, (rank + 1) * rows) if gathered else self._region(0, n * rows)
        shape = f"(torch.Size([{self.moved.rows}, {self.moved.cols}]), {DTYPES[self.moved.dtype]})"
        tensors = ", ".join(f'"{name}": {shape}' for name in dict.fromkeys((self.moved.name, self._target)))
        local = f'local_regions={{"{self.moved.name}": [{here}]}}, tensors_involved={{{tensors}}}'
        return f"    {rank}: DevicePlan(dev={rank}, {local}, xfer=[\n{''.join(stream)}    ]),\n"

    def _transfer(self, rank: int, step: Transfer) -> str:
        n, rows = self.scenario.num_ranks, self.moved.rows // self.scenario.num_ranks
        peer, start = (rank + step.peer) % n, step.region.rows.start
        at = (rank + step.region.owner) % n * rows + start
        source = self._region(at, at + step.region.rows.size, step.region.cols.start, step.region.cols.stop)
        target, put = source, step.direction is Direction.PUT
        if self._target != self.moved.name:
            lands = (rank if put else peer) * rows + start
            target = self._region(lands, lands + step.region.rows.size, step.region.cols.start, step.region.cols.stop)
        more = f", peer={peer}" + (", reduce_op=ReduceOp.SUM" if step.reduce else "")
        computed = not self.kernels[rank].isdisjoint(step.after)
        more += self._dependency(rank, source, self._waits(rank, step), computed=computed)
        return self._op(CommKind.PUSH if put else CommKind.PULL, (source, target), at // rows, more)

    @staticmethod
    def _dependency(rank: int, region: str, keys: Iterable[Key], *, computed: bool) -> str:
        """The argument that says what an operation waits for."""
        waits = [f"ComputeDependency(compute_rank={rank}, src_region={region})"] if computed else []
        for issuer, stream, place in keys:
            at = f"depend_rank={issuer}, depend_xfer_stream={stream}, depend_xfer_idx={place}"
            waits.append(f"XferDependency({at})")
        return f", dependency=[{', '.join(waits)}]" if waits else ""

    def _op(self, kind: CommKind, regions: tuple[str, str], chunk: int, more: str = "") -> str:
        source, target = regions
        buffers = f'src_buf="{self.moved.name}", src_region={source}, dst_buf="{self._target}", dst_region={target}'
        return f"Transfer(op={kind.value}, {buffers}, chunk_idx={chunk}{more})"

    def _region(self, start: int, stop: int, left: int = 0, right: int = 0) -> str:
        """The name of rows, and columns, of a buffer."""
        right, cols = right or self.moved.cols, self.moved.cols
        slices = f"slices=(({start}, {stop}), ({left}, {right}))"
        text = f"BufferRegion.from_slices(elem_size={self.moved.dtype.bytes_of(1)}, strides=({cols}, 1), {slices})"
        return self.regions.setdefault(text, f"r{len(self.regions)}")

    def _waits(self, rank: int, step: Transfer) -> Iterator[Key]:
        """The operations that a transfer waits for, without those before it in its stream."""
        key = self.keys[rank, step.name]
        peer = (rank + step.peer) % self.scenario.num_ranks
        for at, name in (*((rank, name) for name in step.after), *((peer, name) for name in step.peer_after)):
            if name in self.kernels[at]:
                continue
            arrival = self.arrived.get((at, name))
            before = self.keys[at, name] if arrival is None else self.keys[arrival.issuer, arrival.transfer.name]
            if before[:2] == key[:2] and before[2] < key[2]:
                continue
            if arrival is None:
                message = f"{step.name} waits for the end of {name} in another stream, which sets no signal at its rank"
                raise unwritable(message, "the same lane for both, or no order of transfers")
            yield before

    def _check_waits(self) -> None:
        waits: dict[Key, list[Key]] = {}
        for rank in range(self.scenario.num_ranks):
            for step in self.schedule.steps_of(rank):
                if isinstance(step, Transfer):
                    key = self.keys[rank, step.name]
                    in_stream = (key[0], key[1], key[2] - 1)
                    waits[key] = [*self._waits(rank, step), *((in_stream,) if in_stream in waits else ())]
        try:
            first_slots(waits)
        except ValueError:
            message = "transfers that are dealt to streams in turn wait for each other"
            raise unwritable(message, "fewer chunks, or as many engines as peers") from None


def _lines(operations: Iterable[str]) -> str:
    return "".join(f"            {each},\n" for each in operations)


def _said(members: JsonObject) -> str:
    return "{\n" + "".join(f"    {key!r}: {value!r},\n" for key, value in members.items()) + "}"
