"""How to carry out a plan: each part step by step, in the order of issue, and what it waits for in others."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...compiler.ir import (
    COLLECTIVES_STREAM,
    Awaited,
    EngineKind,
    EngineMode,
    JsonObject,
    Kernels,
    Op,
    OpCase,
    OpPlan,
    Part,
    Pattern,
    Plan,
    Reduction,
    System,
    TileGroup,
    Transfer,
    moved_rows,
    rows_of_block,
)
from ...compiler.planning.build import engine_words, non_default_options
from .code import code_lines
from .facts import Frame, Naming
from .how import How, how_of
from .words import Reported, reported_steps

_MODES = {
    EngineMode.SHARED: ", which kernels use too",
    EngineMode.PRELAUNCHED: ", whose commands are written before and wait for a flag",
    EngineMode.BROADCAST: ", where one command may serve two destinations",
    EngineMode.PORTS: ", inside a node; what leaves it a network card sends at their command",
    EngineMode.CHANNELS: ", in channels: the next copy to a peer is set up while bytes of the one before move",
}


def intro_lines(how: How) -> tuple[str, ...]:
    """Return the introduction to the steps, a sentence or two in each line."""
    return tuple(_lines(how))


def _lines(how: How) -> Iterator[str]:
    schedule, scenario = how.schedule, how.scenario
    steps = [step for group in how.groups for step in schedule.steps_of(group.ranks[0])]
    transfers = [step for step in steps if isinstance(step, Transfer)]
    yield _ranks(how)
    if scenario.shape.moved is not None:
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
    shape, n, pattern = scenario.shape, scenario.num_ranks, scenario.shape.pattern
    assert shape.moved is not None, "blocks are those of what moves"
    name, rows = shape.moved.name, moved_rows(shape, n)
    if pattern.exchanges:
        size = "different numbers to each" if shape.uneven else f"{rows} to each"
        equal = " Parts are equal shares of the rows of one rank for another." if how.parts_of_block > 1 else ""
        return f"Each rank sends rows of {name} to every rank, {size}: rows for rank b go there.{equal}"
    if pattern in (Pattern.ALL_GATHER, Pattern.AG_GEMM, Pattern.GEMM_BESIDE_AG):
        return f"Block b of {name} is the {rows} rows of rank b."
    if pattern.reduces:
        return f"Block b of {name} is the {rows} rows whose sum rank b gets."
    if not shape.by_columns and not shape.loads:
        return f"{name} has {n} blocks of {rows} rows; they are counted from 0."
    sizes = sorted({rows_of_block(shape, n, block) for block in range(n)}, reverse=True)
    what = "columns" if shape.by_columns else "rows"
    turned = " Steps count its transpose: their rows are its columns." if shape.by_columns else ""
    return f"{name} has {n} blocks of {' or '.join(map(str, sizes))} {what}; they are counted from 0.{turned}"


def _copies(schedule: OpPlan, scenario: OpCase, transfers: list[Transfer]) -> Iterator[str]:
    engine = schedule.engine
    if engine.by_tiles and not scenario.shape.pattern.produces:
        yield "tiles: each SM pulls what its tiles read, in their order and ahead of them, from inside its kernel."
        return
    if engine.by_tiles:
        yield "tiles: each tile stores what it has computed at the ranks that want it, from inside its kernel."
        return
    who = engine_words(engine)
    left = scenario.gpu.sms - schedule.compute_sms
    leave = ", which kernels leave to them" if left else ""
    taken = "; the first free one takes the next copy" if engine.kind is EngineKind.DMA else ""
    if all(step.lane is None for step in transfers):
        yield f"copies: by {who}{_MODES.get(engine.mode, '')}{leave}{taken}. {_FLAG}"
    else:
        yield f"copy lane i: one of {who}{_MODES.get(engine.mode, '')}{leave}, a copy at a time. {_FLAG}"


_FLAG = "A copy that has arrived sets a flag there."


def _kernels(schedule: OpPlan) -> str:
    order = "Steps of one stream run one after the other; beyond that a step waits only for what it names."
    if schedule.tactics.kernel is Kernels.SHARING:
        return f"kernel: each GEMM has the tile for its share of the SMs, not for all of them. {order}"
    if schedule.tactics.kernel is not Kernels.PERSISTENT:
        return order
    return f"kernel: one persistent kernel, which takes the groups in this order and looks for flags itself. {order}"


def how_document(how: How) -> JsonObject:
    """Return the document: what is taken for granted, the steps of each group of ranks, and pseudo-code."""
    reported = reported_steps(how)
    return {
        "schedule": how.schedule.expression,
        "intro": list(intro_lines(how)),
        "groups": [
            {
                "ranks": list(group.ranks),
                "naming": group.frame.naming.value,
                "steps": [_step_document(line) for line in reported if line.group == number],
            }
            for number, group in enumerate(how.groups)
        ],
        "code": list(code_lines(how)),
    }


def _step_document(line: Reported) -> JsonObject:
    """Return one line; ``places`` are those in the list of steps of each of its ranks, null for the head of a loop."""
    entry = line.entry
    return {
        "number": line.number,
        "text": line.text,
        "kind": "loop" if entry is None else entry.facts.action.kind.value,
        "places": None if entry is None else list(entry.places),
    }


@dataclass(frozen=True, slots=True)
class PartHow:
    """One part of a plan step by step."""

    part: Part
    how: How

    @property
    def label(self) -> str:
        """What it is, for people."""
        return Op(self.part.op, self.part.shape).label

    @property
    def name(self) -> str:
        """What it does: its schedule, or that it is one kernel."""
        is_kernel = self.part.shape.moved is None and len(self.part.schedule.steps) == 1
        return "one kernel" if is_kernel else self.part.schedule.expression

    @property
    def stream(self) -> str:
        """Where its kernels run."""
        if self.part.stream == COLLECTIVES_STREAM:
            return "in the stream of collectives"
        return f"in stream {self.part.stream}" if self.part.stream else "in the main stream"

    @property
    def waits(self) -> tuple[str, ...]:
        """What it waits for in other parts, in words."""
        whole = [f"{_awaited(each.what, each.on)}{_KERNELS * each.kernels_only}" for each in self.part.waits]
        makers = dict.fromkeys(each.on for each in self.part.step_waits)
        return (*whole, *(f"the rows of {maker} that each step takes" for maker in makers))


_KERNELS = ", its kernels alone"


def _awaited(what: Awaited, on: str) -> str:
    match what:
        case Awaited.END:
            return f"all of {on}"
        case Awaited.ARRIVED:
            return f"what {on} gathers"
        case Awaited.BEGUN:
            return f"the begin of the first kernel of {on}"


def how_of_plan(system: System, plan: Plan) -> tuple[PartHow, ...]:
    """Return how to carry out each part of ``plan``, in the order of issue."""
    return tuple(PartHow(part, how_of(OpCase(part.name, system, part.shape), part.schedule)) for part in plan.parts)


def parts_document(name: str, parts: tuple[PartHow, ...]) -> JsonObject:
    """Return the document: that of the one part there is, else of each with its stream and what it waits for."""
    if len(parts) == 1:
        return how_document(parts[0].how)
    return {"schedule": name, "parts": [_part_document(each) for each in parts]}


def _part_document(reported: PartHow) -> JsonObject:
    part = reported.part
    return {
        "part": part.name,
        "op": part.op,
        "pattern": reported.label,
        "stream": reported.stream,
        "priority": part.priority,
        "waits": [{"on": each.on, "what": each.what.value, "kernels_only": each.kernels_only} for each in part.waits],
        "step_waits": [{"step": each.step, "on": each.on, "of": each.of} for each in part.step_waits],
        **how_document(reported.how),
        "schedule": reported.name,
    }
