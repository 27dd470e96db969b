"""Drawings of a training step: stages of the pipeline over time, and the memory of each stage; and its trace."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from ... import __version__
from ...advisor.answer.answer import run_of_candidate
from ...advisor.candidates.advice import Advice
from ...advisor.candidates.shortlist import packet_bytes
from ...advisor.layers.declared import simulated_candidate
from ...advisor.steps.outcome import StageMemory, StepOutcome, memory_limit
from ...compiler.ir import TICKS_PER_US, JsonObject, never
from ...compiler.ir.step import ChunkPass, PassKind
from ...compiler.text.diagnostics import printable
from ...compiler.text.units import axis_unit, bytes_text, seconds_text, span_text
from ...simcore import RunOutcome, ShownRun, run_of, simulate_op
from .svg import TimeScale, document, heading, legend, line_down, rect_at, text_at, trace_text

# The runs of an answer that pictures and pages draw.


def drawn_run(advice: Advice) -> ShownRun | None:
    """Return the run of the recommended schedule, in packets if it was not simulated; None if it does not end."""
    scenario, best = advice.scenario, advice.recommended
    if best.several is not None:
        return run_of_candidate(
            scenario, best if best.result is not None else simulated_candidate(scenario, best, never)
        )
    result = advice.result or simulate_op(advice.case, best.schedule, unit_bytes=packet_bytes(scenario.gpu))
    return run_of(advice.case, result) if result.outcome is RunOutcome.DONE else None


def baseline_run(advice: Advice) -> ShownRun | None:
    """Return the run of the baseline, None if it was not simulated, or not finely."""
    if advice.serial.several is not None:
        return run_of_candidate(advice.scenario, advice.serial)
    return None if advice.serial_result is None else run_of(advice.case, advice.serial_result)


WIDTH, LEFT, RIGHT = 1240.0, 84.0, 96.0
LANE, GAP, TOP = 26.0, 4.0, 92.0
NUMBERED_PIXELS = 13.0
"""Bars from this width on have the number of their microbatch."""
MIN_PIXELS = 0.75
"""Bars that are narrower are drawn together with their neighbours of the same kind."""

_KINDS = {
    PassKind.FORWARD: "compute",
    PassKind.BACKWARD: "reduce",
    PassKind.INPUTS: "reduce",
    PassKind.WEIGHTS: "gradients",
}
_WORDS = {
    PassKind.FORWARD: "forward",
    PassKind.BACKWARD: "backward",
    PassKind.INPUTS: "gradients of inputs",
    PassKind.WEIGHTS: "gradients of weights",
}


@dataclass(frozen=True, slots=True)
class StageSpan:
    """What a stage does from ``start_ticks`` to ``end_ticks``.

    ``place`` is the half of the lane, 0 above and 1 below, of what runs beside something; None is the whole lane.
    ``microbatch`` counts from 1; it is 0 of what belongs to none.
    """

    stage: int
    kind: str
    name: str
    start_ticks: int
    end_ticks: int
    microbatch: int = 0
    place: int | None = None


def spans_of(outcome: StepOutcome) -> Iterator[StageSpan]:
    """Yield what each stage does: the passes that were run, then what follows all of them."""
    run = outcome.run
    for each in run.pipeline.intervals:
        for place, task in enumerate(each.slot):
            half = place if len(each.slot) > 1 else None
            said = _name(task, many=len(run.chunks) > outcome.scenario.num_stages)
            yield StageSpan(
                each.rank, _KINDS[task.work], said, each.begin_ticks, each.end_ticks, task.microbatch + 1, half
            )
    ends = list(accumulate((_passes_end(outcome), run.gradients_ticks, run.optimizer_ticks, run.weights_ticks)))
    behind = (("comm", "sums of gradients"), ("bound", "optimizer"), ("comm", "gathers of weights"))
    for stage in range(outcome.scenario.num_stages):
        for (kind, name), start, end in zip(behind, ends, ends[1:], strict=False):
            if end > start:
                yield StageSpan(stage, kind, name, start, end)


def _name(task: ChunkPass, *, many: bool) -> str:
    path = f", path {task.path + 1}" if task.path else ""
    chunk = f", chunk {task.chunk + 1}" if many else ""
    return f"{_WORDS[task.work]} of microbatch {task.microbatch + 1}{chunk}{path}"


def _passes_end(outcome: StepOutcome) -> int:
    """When the last of the passes that were run ends."""
    return max(each.end_ticks for each in outcome.run.pipeline.intervals)


def step_svg(outcome: StepOutcome) -> str:
    """Return the stages of the pipeline over time: what each computes, and where it waits."""
    spans, stages = list(spans_of(outcome)), outcome.scenario.num_stages
    scale = TimeScale(max(each.end_ticks for each in spans), LEFT, WIDTH - LEFT - RIGHT)
    bottom = TOP + (LANE + GAP) * stages
    title = f"{outcome.scenario.name}: {outcome.layout}, {outcome.words}"
    numbered = any(each.microbatch and _is_numbered(each, scale) for each in spans)
    said = _summary(outcome) + (", numbers are microbatches" if numbered else "")
    body = [*heading(title, said, WIDTH), *_legend(spans), *_axis(outcome, scale, bottom)]
    for stage in range(stages):
        top = TOP + (LANE + GAP) * stage
        body.append(text_at(LEFT - 8, top + 17, f"stage {stage + 1}", anchor="end"))
        body.append(rect_at(LEFT, top, WIDTH - LEFT - RIGHT, LANE, "wait"))
        body += _lane(outcome, [each for each in spans if each.stage == stage], scale, top)
        body.append(text_at(WIDTH - RIGHT + 8, top + 17, f"waits {_waits(outcome, stage):.1%}", "faint"))
    return document(WIDTH, bottom + 12, title, body)


def _summary(outcome: StepOutcome) -> str:
    run = outcome.run
    said = f"step {seconds_text(run.makespan_ticks)}: bubble {run.bubble:.1%}, exposed traffic {run.exposed:.1%}"
    if run.pipeline.simulated < run.pipeline.microbatches:
        said += f"; {run.pipeline.simulated} of {run.pipeline.microbatches} microbatches are drawn, the others repeat"
    return f"{said}; times in {axis_unit(run.makespan_ticks)[0]}"


def _is_numbered(span: StageSpan, scale: TimeScale) -> bool:
    return scale.x(span.end_ticks) - scale.x(span.start_ticks) >= NUMBERED_PIXELS


def _waits(outcome: StepOutcome, stage: int) -> float:
    """The share of the passes in which a stage waits."""
    run = outcome.run.pipeline
    return 1 - run.busy[stage] / run.makespan_ticks


def _legend(spans: list[StageSpan]) -> Iterator[str]:
    known = (
        ("compute", "forward"),
        ("reduce", "backward"),
        ("gradients", "gradients of weights"),
        ("comm", "gradients and weights among replicas"),
        ("bound", "optimizer"),
        ("wait", "waits"),
    )
    present = {each.kind for each in spans} | {"wait"}
    return legend((entry for entry in known if entry[0] in present), 56)


def _axis(outcome: StepOutcome, scale: TimeScale, bottom: float) -> Iterator[str]:
    _, unit_ticks = axis_unit(outcome.run.makespan_ticks)
    for x, label in scale.marks():
        yield line_down(x, TOP - 8, bottom)
        yield text_at(x + 3, TOP - 4, f"{float(label) * TICKS_PER_US / unit_ticks:g}", "faint")


def _lane(outcome: StepOutcome, spans: list[StageSpan], scale: TimeScale, top: float) -> Iterator[str]:
    for group in _joined(spans, scale):
        first, last = group[0], group[-1]
        x, right = scale.x(first.start_ticks), scale.x(last.end_ticks)
        half = LANE / 2
        y, height = (top, LANE) if first.place is None else (top + half * first.place, half)
        when = span_text(first.start_ticks, last.end_ticks, outcome.run.makespan_ticks)
        about = f"{first.name}: {when}" if len(group) == 1 else f"{len(group)} passes: {when}"
        inset = 0.4 if right - x > 3 else 0.0
        yield rect_at(x + inset, y, max(right - x - 2 * inset, 0.3), height - (first.place == 0), first.kind, about)
        if len(group) == 1 and first.microbatch and _is_numbered(first, scale):
            yield text_at((x + right) / 2, y + height / 2 + 3.5, str(first.microbatch), "on", "middle")


def _joined(spans: list[StageSpan], scale: TimeScale) -> Iterator[list[StageSpan]]:
    """Yield spans, those that are too narrow together with the ones of their kind that meet them."""
    group: list[StageSpan] = []
    for each in sorted(spans, key=lambda span: (span.place or 0, span.start_ticks)):
        narrow = scale.x(each.end_ticks) - scale.x(each.start_ticks) < MIN_PIXELS
        alike = group and (group[-1].kind, group[-1].place, group[-1].end_ticks) == (
            each.kind,
            each.place,
            each.start_ticks,
        )
        if group and not (narrow and alike):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


PARTS = (
    ("weights", "compute"),
    ("gradients", "comm"),
    ("optimizer", "reduce"),
    ("activations", "gradients"),
    ("transient", "bound"),
)
"""What the memory of a stage consists of, and how each is painted."""


def parts_of(memory: StageMemory) -> tuple[tuple[str, int, str], ...]:
    """Return name, bytes and kind of what the memory of a stage consists of; the last is what is added for safety."""
    counted = tuple((name, int(getattr(memory, name)), kind) for name, kind in PARTS)
    return (*counted, ("margin", memory.total - memory.counted, "wait"))


def memory_svg(outcome: StepOutcome) -> str:
    """Return the memory of a GPU of each stage, and what there is of it."""
    limit = memory_limit(outcome.scenario)
    most = max(limit, outcome.memory_bytes)
    bottom, scale = TOP + (LANE + GAP) * len(outcome.memory), (WIDTH - LEFT - RIGHT) / most
    title = f"Memory of a GPU of each stage: {outcome.layout}, {outcome.words}"
    fits = "fits into" if outcome.fits else "does not fit into"
    said = f"at most {bytes_text(outcome.memory_bytes)}, {fits} {bytes_text(limit)}; margin: 8 % and 3 GiB"
    kinds = ((kind, name) for name, _, kind in parts_of(outcome.memory[0]))
    body = [*heading(title, said, WIDTH), *legend(kinds, 56, apart=44)]
    for stage, memory in enumerate(outcome.memory):
        top, x = TOP + (LANE + GAP) * stage, LEFT
        body.append(text_at(LEFT - 8, top + 17, f"stage {stage + 1}", anchor="end"))
        for name, size, kind in parts_of(memory):
            body.append(rect_at(x, top, size * scale, LANE, kind, f"{name}: {bytes_text(size)}"))
            x += size * scale
        body.append(text_at(WIDTH - RIGHT + 8, top + 17, bytes_text(memory.total), "faint"))
    body.append(line_down(LEFT + limit * scale, TOP - 6, bottom, "critical"))
    return document(WIDTH, bottom + 12, title, body)


def step_trace(outcome: StepOutcome) -> str:
    """Return the trace of a step for Perfetto: each stage a process, with what it computes."""
    events: list[JsonObject] = []
    for stage in range(outcome.scenario.num_stages):
        name = f"stage {stage + 1}: {printable(outcome.scenario.system.gpu.name)}"
        events.append({"ph": "M", "name": "process_name", "pid": stage, "tid": 0, "ts": 0, "args": {"name": name}})
    for each in spans_of(outcome):
        start, end = (round(ticks / TICKS_PER_US, 6) for ticks in (each.start_ticks, each.end_ticks))
        place = {"pid": each.stage, "tid": each.place or 0, "ts": start, "dur": round(end - start, 6)}
        args = {"microbatch": each.microbatch} if each.microbatch else {}
        events.append({"ph": "X", "cat": each.kind, "name": each.name, **place, "args": args})
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "magus": {"version": __version__, "step": outcome.scenario.name, **outcome.document()},
    }
    return trace_text(head, events)
