"""What the numbered steps take for granted: names of ranks and blocks, engines, queues."""

from collections.abc import Iterator

from ...compiler.ir import (
    EngineChoice,
    EngineKind,
    EngineMode,
    Kernels,
    Pattern,
    Reduction,
    Scenario,
    Schedule,
    TileGroup,
    Transfer,
    moved_rows,
    rows_of_block,
)
from ...compiler.planning.expression import non_default_options
from .frames import Frame, Naming
from .how import How

_MODES = {
    EngineMode.SHARED: ", which kernels use too",
    EngineMode.PRELAUNCHED: ", whose commands are written before and wait for a flag",
    EngineMode.BROADCAST: ", where one command may serve two destinations",
}


def intro_lines(how: How) -> tuple[str, ...]:
    """Return what is said before the steps, a sentence or two each."""
    return tuple(_lines(how))


def _lines(how: How) -> Iterator[str]:
    schedule, scenario = how.schedule, how.scenario
    steps = [step for group in how.groups for step in schedule.steps_of(group.ranks[0])]
    transfers = [step for step in steps if isinstance(step, Transfer)]
    yield _ranks(how)
    if scenario.workload.moved is not None:
        yield _blocks(how)
    if transfers and not schedule.engine.by_library:
        yield from _copies(schedule, scenario, transfers)
    if any(isinstance(step, TileGroup | Reduction) for step in steps):
        yield _kernels(schedule)
    options = ", ".join(f"{word} {value}" for word, value in non_default_options(schedule.tactics))
    if options:
        yield f"Execution options: {options}."


def _ranks(how: How) -> str:
    n, frame = how.scenario.num_ranks, how.groups[0].frame
    if len(how.groups) > 1:
        return f"The {n} ranks do {len(how.groups)} different things.{_names(frame)}"
    return f"Every rank r of {n} does the same.{_names(frame)}"


def _names(frame: Frame) -> str:
    match frame.naming:
        case Naming.SHIFT:
            return f" Ranks count modulo {frame.num_ranks}."
        case Naming.XOR:
            return " r^k is r with the bits of k flipped."
        case Naming.NODES:
            nodes, size = frame.moduli
            return f" It is (q, p), place p of node q; q counts modulo {nodes}, p modulo {size}."
        case Naming.ABSOLUTE:
            return ""


def _blocks(how: How) -> str:
    scenario = how.scenario
    workload, n, pattern = scenario.workload, scenario.num_ranks, scenario.workload.pattern
    assert workload.moved is not None, "blocks are those of what moves"
    name, rows = workload.moved.name, moved_rows(workload, n)
    if pattern.exchanges:
        size = "different numbers to each" if workload.uneven else f"{rows} to each"
        equal = " Parts are equal shares of the rows of one rank for another." if how.parts_of_block > 1 else ""
        return f"Each rank sends rows of {name} to every rank, {size}: rows for rank b go there.{equal}"
    if pattern in (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG):
        return f"Block b of {name} is the {rows} rows of rank b."
    if pattern.reduces:
        return f"Block b of {name} is the {rows} rows whose sum rank b gets."
    if not workload.by_columns and not workload.loads:
        return f"{name} has {n} blocks of {rows} rows; they are counted from 0."
    sizes = sorted({rows_of_block(workload, n, block) for block in range(n)}, reverse=True)
    what = "columns" if workload.by_columns else "rows"
    turned = " Steps count its transpose: their rows are its columns." if workload.by_columns else ""
    return f"{name} has {n} blocks of {' or '.join(map(str, sizes))} {what}; they are counted from 0.{turned}"


def _copies(schedule: Schedule, scenario: Scenario, transfers: list[Transfer]) -> Iterator[str]:
    engine = schedule.engine
    if engine.by_tiles:
        yield "tiles: each tile stores what it has computed at the ranks that want it, from inside its kernel."
        return
    who = _engines(engine)
    left = scenario.gpu.sms - schedule.compute_sms
    leave = ", which kernels leave to them" if left else ""
    taken = "; the first free one takes the next copy" if engine.kind is EngineKind.DMA else ""
    if all(step.lane is None for step in transfers):
        yield f"copies: by {who}{_MODES.get(engine.mode, '')}{leave}{taken}. {_FLAG}"
    else:
        yield f"copy lane i: one of {who}{_MODES.get(engine.mode, '')}{leave}, a copy at a time. {_FLAG}"


_FLAG = "A copy that has landed sets a flag there."


def _engines(engine: EngineChoice) -> str:
    what = "copy engine" if engine.kind is EngineKind.DMA else "SM"
    return f"{engine.count} {what}{'s' if engine.count > 1 else ''}"


def _kernels(schedule: Schedule) -> str:
    order = "Steps of one stream run one after the other; beyond that a step waits only for what it names."
    if schedule.tactics.kernel is not Kernels.PERSISTENT:
        return order
    return f"kernel: one persistent kernel, which takes the groups in this order and looks for flags itself. {order}"
