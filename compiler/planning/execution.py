"""How a schedule is carried out: what its words are, how they are printed, and what a machine can do of it."""

from collections.abc import Mapping
from enum import Enum

from ..codes import Code
from ..ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Gpu,
    Kernels,
    LaunchMode,
    Rejection,
    System,
    Wait,
    WaitPer,
    Workload,
)
from ..text.vocabulary import TACTICS

MODES: Mapping[EngineKind, tuple[EngineMode, ...]] = {
    EngineKind.DMA: (EngineMode.PRELAUNCHED, EngineMode.BROADCAST),
    EngineKind.SM: (EngineMode.SHARED,),
}
# Values of each word of TACTICS.
VALUES: Mapping[str, type[Enum]] = {
    "transfer": Direction,
    "protocol": CopyProtocol,
    "kernel": Kernels,
    "wait": Wait,
    "per": WaitPer,
    "launch": LaunchMode,
}


def words_of(kind: type[Enum]) -> tuple[str, ...]:
    """The words for the values of ``kind``."""
    return tuple(each.value for each in kind)


def tactics_from(given: Mapping[str, str]) -> ExecutionOptions:
    """Execution options from words; what is not said is usual, and a persistent kernel usually polls."""
    kernel = Kernels(given.get("kernel", Kernels.LAUNCHED.value))
    usual_wait = Wait.POLL if kernel is Kernels.PERSISTENT else Wait.EVENT
    return ExecutionOptions(
        Direction(given.get("transfer", Direction.PUT.value)),
        CopyProtocol(given.get("protocol", CopyProtocol.SIMPLE.value)),
        kernel,
        Wait(given.get("wait", usual_wait.value)),
        WaitPer(given.get("per", WaitPer.CHUNK.value)),
        LaunchMode(given.get("launch", LaunchMode.STREAM.value)),
    )


def said(tactics: ExecutionOptions) -> tuple[tuple[str, str], ...]:
    """(word, value) of everything that is not usual, in the order of the canonical text."""
    given = values_of(tactics)
    usual = {**values_of(ExecutionOptions()), "wait": tactics_from({"kernel": tactics.kernel.value}).wait}
    return tuple((word, str(given[word].value)) for word in TACTICS if given[word] is not usual[word])


def values_of(tactics: ExecutionOptions) -> dict[str, Enum]:
    """The value of each word of TACTICS."""
    return {
        "transfer": tactics.direction,
        "protocol": tactics.protocol,
        "kernel": tactics.kernel,
        "wait": tactics.wait,
        "per": tactics.per,
        "launch": tactics.launch,
    }


def reject_mode(gpu: Gpu, engine: EngineChoice) -> Rejection | None:
    """Why ``engine`` cannot be had in its mode, or None if it can."""
    if engine.mode is EngineMode.OWN or engine.mode in MODES[engine.kind]:
        return None
    known = ", ".join(mode.value for mode in MODES[engine.kind])
    message = f"{engine.kind.value} of {gpu.name} is never {engine.mode.value}"
    return Rejection(Code.MGS407, message, f"it may be: {known}")


def reject_tactics(system: System, engine: EngineChoice, tactics: ExecutionOptions) -> Rejection | None:
    """Why the system cannot carry out ``tactics`` with ``engine``, or None if it can."""
    return _reject_protocol(system, engine, tactics.protocol) or _reject_wait(system.gpu, tactics)


def reject_reach(system: System, *, sums: bool) -> Rejection | None:
    """Why the fabric cannot copy to all ranks, or sum what all ranks hold, or None if it can."""
    switch, word = system.fabric.one_switch, "reduces" if sums else "multicast"
    what = "sums what all ranks hold" if sums else "copies to all ranks at once"
    if switch is None:
        return Rejection(Code.MGS409, f"no switch of {system.name} {what}", "this needs fabric switch(...)")
    if not (switch.reduces if sums else switch.multicast):
        return Rejection(
            Code.MGS409, f"switch {switch.name} is not one that {what}", f"its profile says so: {word} yes"
        )
    return None


def _reject_protocol(system: System, engine: EngineChoice, protocol: CopyProtocol) -> Rejection | None:
    if protocol is CopyProtocol.SIMPLE:
        return None
    if engine.kind is not EngineKind.SM:
        return Rejection(
            Code.MGS408, f"protocol {protocol.value} is one of copies by SMs, not of {engine}", "use engine sm(16)"
        )
    link = system.fabric.link
    if protocol not in link.protocols:
        known = ", ".join(each.value for each in link.protocols)
        return Rejection(
            Code.MGS408, f"link {link.name} does not carry protocol {protocol.value}", f"it carries: {known}"
        )
    return None


def reject_persistent(workload: Workload) -> Rejection | None:
    """Why no persistent kernel can compute ``workload``, None if one can."""
    if workload.may_persist:
        return None
    has = "none" if workload.then is None else "two kernels"
    message = f"a persistent kernel walks through the tiles of one GEMM, {workload.label} has {has}"
    return Rejection(Code.MGS511, message, "leave kernel=persistent out")


def _reject_wait(gpu: Gpu, tactics: ExecutionOptions) -> Rejection | None:
    persistent = tactics.kernel is Kernels.PERSISTENT
    if tactics.wait is not Wait.EVENT and not persistent:
        return Rejection(
            Code.MGS513, f"only a persistent kernel waits by {tactics.wait.value}", "say kernel=persistent"
        )
    if tactics.wait is Wait.EVENT and persistent:
        message = "a persistent kernel is launched once and cannot wait for events in between"
        return Rejection(Code.MGS513, message, "say wait=poll or wait=monitor")
    if tactics.per is WaitPer.TILE and not persistent:
        return Rejection(Code.MGS513, "only a persistent kernel looks again for each tile", "say kernel=persistent")
    if tactics.wait is Wait.MONITOR and not gpu.sync.monitor_entries:
        return Rejection(Code.MGS410, f"{gpu.name} has no monitors that kernels could wait with", "say wait=poll")
    return None
