"""Several ops, and several workloads, as plain text: a line for each, its layers, when each op runs, and a total."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...advisor.answer.export import advice_document
from ...advisor.candidates.advice import Advice, short_names
from ...advisor.candidates.candidate import Candidate
from ...compiler.ir import TICKS_PER_US, JsonObject, OpCase, OpShape, Partition, Scenario, Settings, WorkloadCut
from ...compiler.planning.build import ScheduleError, schedule_block
from ...compiler.planning.groups import experts_of_a_rank, labels_of
from ...compiler.planning.parts import batch_counts
from ...compiler.planning.plan import in_layer, own_name
from ...compiler.text.units import ticks_text
from ...simcore import OpResult, Result
from ...simcore.figures.result import IntervalKind
from ...simcore.simulate_layers import SHOWN_LAYER
from .door import VERDICTS, Exit, columns, hanging, table_lines, wrapped

OTHER_LAYERS = "the others are taken to last as the later half of these"
"""How long layers take that are not simulated and follow from no period."""

_FIGURES = ("from", "to", "compute", "comm", "exposed")
_CHART = {frozenset(): " ", frozenset({False}): "=", frozenset({True}): "-", frozenset({False, True}): "#"}
"""Marks of the chart, by whether copies run and whether kernels do."""


def ops_line(scenario: Scenario) -> str:
    """Return the workload in one line: its ops, layers, GPUs and fabric."""
    workload, system = scenario.workload, scenario.system
    fabric = system.fabric.topology.name.replace("_", " ")
    layers = f", {workload.repeat.count} layers" if workload.repeat is not None else ""
    return f"{workload.name}: {len(workload.ops)} ops{layers} on {system.title}, {fabric}"


def ops_lines(scenario: Scenario) -> Iterator[str]:
    """Yield what each op is and reads, the numbers of batches there may be, and the declared schedules."""
    width = max(len(op.name) for op in scenario.workload.ops)
    for op in scenario.workload.ops:
        made = dict.fromkeys(read.tensor for read in op.reads if read.made_by)
        reads = f" reads {', '.join(made)}" if made else ""
        yield from hanging(f"  {op.name:<{width}}  {op.label}{reads}", width + 4)
    yield ""
    batch, counts = scenario.workload.batch, ", ".join(map(str, batch_counts(scenario.workload)))
    if batch is not None:
        yield from wrapped(f"Batches, of sequences of {batch.rows} rows of {', '.join(batch.inputs)}: {counts}.")
    experts = experts_of_a_rank(scenario.workload)
    if experts > 1:
        yield from wrapped(f"Groups of experts, of {experts} of each rank: 1 to {experts}.")
    names = [choice.name for choice in scenario.schedules]
    yield from wrapped(f"Schedules: {', '.join(names) or 'none is declared'}; serial is always there.")


def layers_lines(result: Result) -> Iterator[str]:
    """Yield how many layers were simulated for all."""
    if result.layers == 1:
        return
    if result.period_ticks is None:
        yield from wrapped(f"{result.layers} layers, all simulated")
        return
    layers = f"{result.layers} layers: {result.num_simulated} simulated"
    shown = f"which show no period: {OTHER_LAYERS}" if result.is_estimate else "which the others repeat to the tick"
    yield from wrapped(f"{layers}, {shown}")


def layers_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the time of all layers and of each, where not all were simulated; what follows is of those that were."""
    if result.period_ticks is not None:
        yield "all layers", ticks_text(result.total_ticks), f"{result.layers} layers"
        yield "a layer", ticks_text(result.period_ticks), f"from one to the next; below, {result.num_simulated} layers"


def run_lines(scenario: Scenario, result: Result, cut: WorkloadCut) -> Iterator[str]:
    """Yield the ops of what is cut so with their times in us, and a chart; of several layers those of one within."""
    layer = min(SHOWN_LAYER, result.num_simulated)
    shown = [op for op in result.ops if op.name == in_layer(own_name(op.name), layer)]
    labels = labels_of(scenario.workload, cut)
    name_width = max(len("op, us"), *(len(op.name) for op in shown))
    label_width = max(len("pattern"), *(len(labels[own_name(op.name)]) for op in shown))
    yield f"{'op, us':<{name_width}}  {'pattern':<{label_width}}" + "".join(f"{figure:>9}" for figure in _FIGURES)
    for op in shown:
        ticks = (op.begin_ticks, op.end_ticks, op.compute_ticks, op.comm_ticks, op.exposed_ticks)
        figures = "".join(f"{each / TICKS_PER_US:>9.1f}" for each in ticks)
        yield f"{op.name:<{name_width}}  {labels[own_name(op.name)]:<{label_width}}{figures}"
    if len(result.ops) > 1:
        yield from ("", *_chart(result, shown))


def _chart(result: Result, shown: Sequence[OpResult]) -> Iterator[str]:
    """A line for each op over time, at rank 0: where its kernels run, where its copies do, and where both."""
    begin, end = min(op.begin_ticks for op in shown), max(op.end_ticks for op in shown)
    width = max(len(op.name) for op in shown)
    cells = columns() - width - 2
    yield from wrapped("Over time, = kernels, - copies, # both:")
    for op in shown:
        own = [one for one in result.timeline.of_rank(0) if one.name.partition(".")[0] == op.name]
        line = ""
        for cell in range(cells):
            low, high = (begin + (end - begin) * edge // cells for edge in (cell, cell + 1))
            here = {one.kind is IntervalKind.COMM for one in own if one.start_ticks < high and one.end_ticks > low}
            line += _CHART[frozenset(here)]
        yield f"{op.name:<{width}}  {line}".rstrip()


def searched_sentence(advice: Advice) -> str:
    """Return how many schedules of several ops were simulated, and how finely."""
    best = advice.recommended
    searched = f"{advice.searched} schedules were simulated"
    if best.result is None or best.unit_bytes is None:
        return f"{searched}, a few layers each."
    layers = f", all {advice.scenario.num_layers} layers" if advice.scenario.num_layers > 1 else ""
    return f"{searched}; the finalists at {best.result.granularity} granularity ({best.unit_bytes} B){layers}."


def op_advice_lines(advice: Advice) -> Iterator[str]:
    """Yield a row for each op, by the time at which it begins: what it does, and what is exposed."""
    yield from wrapped("A layer with neighbours, in us:" if advice.scenario.num_layers > 1 else "Op by op, in us:")
    first = min(op.begin_ticks for op in advice.ops)
    rows: list[tuple[Sequence[str], str]] = [(("op", "from", "to", "copies", "exposed"), "how")]
    for op in advice.ops:
        times = (op.begin_ticks - first, op.end_ticks - first, op.comm_ticks, op.exposed_ticks)
        cells = (
            op.name,
            *(f"{ticks / TICKS_PER_US:.1f}" if ticks or place < 2 else "" for place, ticks in enumerate(times)),
        )
        rows.append((cells, op.how or op.label))
    yield from table_lines(rows, words=(0,))


def block_of_schedule(advice: Advice) -> str:
    """Return the recommended schedule as a block to paste; empty where the file has it, or nothing is to be declared.

    Where an op has a plan written out there is none either.
    """
    best = advice.recommended
    if best.several is None or best.joint in advice.scenario.schedules or best.is_serial:
        return ""
    try:
        return schedule_block(best.joint, advice.scenario.name)
    except ScheduleError:
        return ""


def block_lines(block: str) -> Iterator[str]:
    """Yield a block as it is pasted, its long lines wrapped."""
    yield from ("As a block for the file:", "")
    for line in block.splitlines():
        yield from hanging(line.strip(), 6, line[: len(line) - len(line.lstrip())])


def schedule_text(scenario: Scenario, candidate: Candidate) -> str:
    """Return the block that declares a schedule; serial is always there, and so is its block."""
    try:
        return schedule_block(candidate.joint, scenario.workload.name)
    except ScheduleError as error:
        return f"{error.rejection.message}.\n"


def question_line(scenario: Scenario) -> str:
    """Return the question in one line: workload, pattern and shape of the one op, or the ops; and the system."""
    return ops_line(scenario) if scenario.only_case is None else scenario_line(scenario.only_case)


def scenario_line(scenario: OpCase) -> str:
    """Return the question in one line: workload, pattern, shape, system."""
    workload, system, shape = scenario.shape, scenario.system, shape_text(scenario.shape)
    fabric = system.fabric.topology.name.replace("_", " ")
    if workload.loads and workload.pattern.consumes:
        shape = shape.replace("per rank", f"at rank {workload.rank}, which gets most,")
    what = f"{workload.label} {shape}" if shape else workload.label
    return f"{workload.name}: {what} on {system.title}, {fabric}"


def shape_text(shape: OpShape) -> str:
    """Return the shape of a rank's computation; empty for a kernel alone other than a GEMM, and without a kernel."""
    if shape.then is not None:
        first, then = (shape_text(shape.stage(kernel)).removesuffix(" per rank") for kernel in range(2))
        return f"{first}, then {then.partition(' ')[2]} per rank"
    compute, alone = shape.compute, shape.moved is None and shape.gemm is None
    return "" if compute is None or alone or not compute.text else f"{compute.text} per rank"


def scenario_words(path: Path, settings: Settings, workload: str) -> tuple[str, ...]:
    """Return what names a workload of a file on the command line."""
    given = (word for name, value in settings for word in ("--set", f"{name}={value}"))
    return str(path), "--workload", workload, *given


SCHEMA = "magus-advice-list/1"
_HEAD = ("workload", "verdict", "us", "baseline", "gain")


@dataclass(frozen=True, slots=True)
class WorkloadAnswer:
    """The advice for one workload, or ``reason``, why there is none, with the exit code of that."""

    scenario: Scenario
    advice: Advice | None
    reason: str = ""
    exit_code: Exit = Exit.DONE


def several_text(answers: Sequence[WorkloadAnswer], source: Sequence[str], partitions: Sequence[Partition] = ()) -> str:
    """Return the table; ``source`` are the words that name the file on the command line.

    Below it is the time of each of the ``partitions``, workloads on several groups, whose parts all have advice.
    """
    return "\n".join(_lines(answers, source, partitions))


def several_document(answers: Sequence[WorkloadAnswer], partitions: Sequence[Partition] = ()) -> JsonObject:
    """Return the advice of each workload, the sums of their times, and those of ``partitions``."""
    us, baseline_us = _sums(answers)
    return {
        "schema": SCHEMA,
        "workloads": [advice_document(answer.advice) for answer in answers if answer.advice is not None],
        "without_advice": {each.scenario.title: each.reason for each in answers if each.advice is None},
        "total": {"us": us, "baseline_us": baseline_us, "gain": baseline_us / us if us else None},
        "on_several_groups": [
            {"workload": whole.name, "parts": list(whole.parts), "layers": whole.layers, "us": own, "baseline_us": base}
            for whole, (own, base) in _wholes(answers, partitions)
        ],
    }


def _wholes(
    answers: Sequence[WorkloadAnswer], partitions: Sequence[Partition]
) -> Iterator[tuple[Partition, tuple[float, float]]]:
    """Yield each workload on several groups with the times of all its layers, recommended and by the baseline."""
    for whole in partitions:
        parts = [each for each in answers if each.scenario.name in whole.parts and each.advice is not None]
        if len(parts) == len(whole.parts):
            us, baseline_us = _sums(parts)
            yield whole, (us * whole.layers, baseline_us * whole.layers)


def _sums(answers: Sequence[WorkloadAnswer]) -> tuple[float, float]:
    """Return the times of all workloads one after the other, recommended and by the baseline."""
    known = [answer.advice for answer in answers if answer.advice is not None]
    return sum(one.recommended.best_us for one in known), sum(one.serial.best_us for one in known)


def _time(candidate: Candidate) -> str:
    estimated = candidate.several is not None and candidate.is_estimate
    return f"{'~' if estimated else ''}{candidate.best_us:.1f}"


def _lines(answers: Sequence[WorkloadAnswer], source: Sequence[str], partitions: Sequence[Partition]) -> Iterator[str]:
    known = [(answer.scenario, answer.advice) for answer in answers if answer.advice is not None]
    names = short_names((advice.recommended.expression, advice.recommended.choice) for _, advice in known)
    rows = [_row(scenario, advice, names) for scenario, advice in known]
    us, baseline_us = _sums(answers)
    if len(rows) > 1:
        rows.append((("all, in turn", "", f"{us:.1f}", f"{baseline_us:.1f}", f"{baseline_us / us:.2f}x"), ""))
    yield from table_lines([(_HEAD, "schedule"), *rows], words=(0, 1))
    for answer in answers:
        if answer.advice is None:
            yield from hanging(f"- {answer.scenario.title}: {answer.reason}", 2)
    yield ""
    for whole, (own, base) in _wholes(answers, partitions):
        layers = f"{whole.layers} layers of {whole.name}" if whole.layers > 1 else whole.name
        times = f"{own:.1f} us against {base:.1f} us by the baseline, {base / own:.2f}x"
        yield from wrapped(
            f"{layers}, {' then '.join(whole.parts)}: {times}. Each part takes whole what another group hands over; "
            "nothing of one is searched beside another."
        )
    first = next((answer for answer in answers if answer.advice is not None), answers[0])
    more = shlex.join(["magus", "advise", *source, "--workload", first.scenario.title])
    estimated = ", ~ estimated" if any("~" in cell for cells, _ in rows for cell in cells) else ""
    yield from wrapped(
        f"Each workload alone, in us{estimated}. --workload says more: the schedule in full, why, and what it rests on."
    )
    yield f"  {more}"


def _row(scenario: Scenario, advice: Advice, names: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    best, serial = advice.recommended, advice.serial
    marks = " (stopped early)" if advice.interrupted else ""
    cells = (
        scenario.title,
        VERDICTS[advice.verdict.value],
        _time(best),
        _time(serial),
        f"{advice.speedup:.2f}x",
    )
    return cells, names.get(best.expression, best.expression) + marks
