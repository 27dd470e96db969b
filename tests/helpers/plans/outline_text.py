"""The canonical text of an outline; what is as usual is left out. Read again, it is the same outline."""

from magus.compiler.ir import PeerOrder
from magus.compiler.outline.outline import By, Grouping, KernelGroup, Ordering, Outline, Split, SplitAxis, Sums
from magus.compiler.planning.build import non_default_options


def outline_text(outline: Outline, name: str, workload: str) -> str:
    """``schedule NAME for WORKLOAD { split ... }``."""
    lines = [f"  {line}" for line in _statements(outline)]
    return "\n".join([f"schedule {name} for {workload} {{", *lines, "}"]) + "\n"


def _statements(outline: Outline) -> list[str]:
    tactics = dict(non_default_options(outline.tactics))
    lines = [_split(outline.split)]
    lines += [f"split own rows {_listed(outline.own)}"] if outline.own else []
    lines += [_move(outline, tactics)]
    lines += _some("group", _groups(outline.grouping)) + _some("order", _order(outline.ordering))
    lines += [f"streams {outline.streams}"] if outline.streams > 1 else []
    lines += [f"sums {outline.sums.value}"] if outline.sums is not Sums.PARALLEL else []
    sync = [tactics["wait"]] if "wait" in tactics else []
    sync += [f"per {tactics['per']}"] if "per" in tactics else []
    lines += [f"sync {' '.join(sync)}"] if sync else []
    return lines + [f"{word} {tactics[word]}" for word in ("kernel", "launch", "tile", "split_k") if word in tactics]


def _some(word: str, clauses: list[str]) -> list[str]:
    return [f"{word} {', '.join(clauses)}"] if clauses else []


def _split(split: Split) -> str:
    if split.axis is SplitAxis.SHARDS:
        return "split shards"
    if split.total:
        return f"split {split.axis.value} {_listed(split.sizes)}"
    return f"split {split.axis.value} " + (f"at {_listed(split.cuts)}" if split.cuts else f"into {split.parts}")


def _move(outline: Outline, tactics: dict[str, str]) -> str:
    words = [f"move by {outline.engine}", tactics.get("transfer", ""), outline.algorithm]
    words += [f"protocol {tactics['protocol']}"] if "protocol" in tactics else []
    words += [f"depth {outline.depth}"] if outline.depth else []
    words += [f"lanes {outline.lanes}"] if outline.lanes else []
    words += ["one at a time"] if outline.one_at_a_time else []
    return " ".join(word for word in words if word)


def _groups(grouping: Grouping) -> list[str]:
    clauses = [] if grouping.own_alone else ["own together"]
    clauses += [grouping.by.value] if not grouping.batches and grouping.by is not By.PIECE else []
    return clauses + [_batch(batch) for batch in grouping.batches]


def _batch(batch: KernelGroup) -> str:
    pieces = f"pieces {batch.first}..{batch.last}" if batch.last > batch.first else f"piece {batch.first}"
    return f"{pieces} {batch.by.value}"


def _order(ordering: Ordering) -> list[str]:
    clauses = [] if ordering.own is None else [f"own {ordering.own.value}"]
    clauses += [f"pieces {_listed(ordering.pieces)}"] if ordering.pieces else []
    clauses += [f"peers {_listed(ordering.peers)}"] if ordering.peers else []
    clauses += [f"peers {ordering.order.value}"] if ordering.order is not PeerOrder.ROTATED else []
    return clauses + (["by peer"] if ordering.peers_outermost else [])


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
