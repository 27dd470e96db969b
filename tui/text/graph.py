"""Graphs as plain text: a simulated schedule with the times of its ops, and the ops and schedules of a file."""

from collections.abc import Iterator, Sequence

from ...advisor.bounds.lower_bound import Bound
from ...compiler.ir import TICKS_PER_US, GraphPlan, GraphScenario, batch_of
from ...compiler.planning.graph_batches import batch_counts, labels_of
from ...compiler.planning.graph_layers import in_layer, own_name
from ...compiler.text.quantities import bytes_text, ticks_text, us_text
from ...simcore import RunOutcome
from ...simcore.figures.graph_result import OpResult
from ...simcore.figures.result import IntervalKind
from ...simcore.simulate_layers import SHOWN_LAYER, LayersResult
from .render import critical_lines, folding_sentence
from .wrap import bullet, columns, hanging, wrapped

_FIGURES = ("from", "to", "compute", "comm", "exposed")

_MARKS = {frozenset(): " ", frozenset({False}): "=", frozenset({True}): "-", frozenset({False, True}): "#"}
"""Marks of the chart, by whether copies run and whether kernels do."""


OTHER_LAYERS = "the others are taken to last as the later half of these"
"""How long layers take that are not simulated and follow from no period."""


def graph_text(
    scenario: GraphScenario, plan: GraphPlan, result: LayersResult, bound: Bound, outside: Sequence[str] = ()
) -> str:
    """Return one simulated schedule of a graph; ``outside`` names what the profile is not fitted to."""
    return "\n".join(_lines(scenario, plan, result, bound, outside))


def _lines(
    scenario: GraphScenario, plan: GraphPlan, result: LayersResult, bound: Bound, outside: Sequence[str]
) -> Iterator[str]:
    whole = result.simulated.whole
    yield from wrapped(graph_line(scenario))
    yield from wrapped(f"{plan.expression} at {whole.granularity} granularity ({whole.unit_bytes} B)")
    yield from wrapped(folding_sentence(whole))
    if whole.outcome is not RunOutcome.DONE:
        yield from wrapped(f"PARTIAL: {whole.outcome.value}")
    for sentence in outside:
        yield from bullet("!", sentence)
    if result.layers > 1:
        yield from wrapped(_layers_sentence(result))
    yield ""
    rows = (
        *_layers_rows(result),
        ("makespan", us_text(whole.makespan_us), f"{whole.makespan_cycles:,} cycles"),
        ("compute", ticks_text(whole.compute_ticks), "busy time of kernels"),
        ("communication", ticks_text(whole.comm_ticks), "busy time of transfers"),
        ("exposed", ticks_text(whole.exposed_ticks), "makespan without compute"),
        ("lower bound", ticks_text(bound.ticks), f"binding: {bound.binding}{_of_all(result)}"),
        ("staging", bytes_text(whole.schedule.staging_bytes), "at one time"),
        ("SMs, links", f"{whole.utilization.sms:.0%}, {whole.utilization.links:.0%}", "busy"),
    )
    names, values = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    for name, value, note in rows:
        yield from hanging(f"{name:<{names}}  {value:>{values}}  {note}", names + 2)
    yield ""
    shown = _shown_ops(result)
    yield from _table(scenario, shown)
    if len(result.simulated.ops) > 1:
        yield from ("", *_chart(result, shown))
    if whole.critical_path:
        yield from ("", *critical_lines(whole.critical_path))


def graph_line(scenario: GraphScenario) -> str:
    """Return the graph in one line: its ops, layers, GPUs and fabric."""
    graph, system = scenario.graph, scenario.system
    fabric = system.fabric.topology.name.replace("_", " ")
    layers = f", {graph.repeat.count} layers" if graph.repeat is not None else ""
    return f"{graph.name}: {len(graph.ops)} ops{layers} on {system.num_ranks} x {system.gpu.name}, {fabric}"


def _layers_sentence(result: LayersResult) -> str:
    """Return how many layers were simulated for all."""
    if result.period_ticks is None:
        return f"{result.layers} layers, all simulated"
    layers = f"{result.layers} layers: {result.num_simulated} simulated"
    if result.estimated:
        return f"{layers}, which show no period: {OTHER_LAYERS}"
    return f"{layers}, which the others repeat to the tick"


def _layers_rows(result: LayersResult) -> Iterator[tuple[str, str, str]]:
    """Yield the time of all layers and of each, where not all were simulated; what follows is of those that were."""
    if result.period_ticks is not None:
        yield "all layers", ticks_text(result.makespan_ticks), f"{result.layers} layers"
        yield "a layer", ticks_text(result.period_ticks), f"from one to the next; below, {result.num_simulated} layers"


def _of_all(result: LayersResult) -> str:
    return f", of {result.layers} layers" if result.layers > 1 else ""


def _shown_ops(result: LayersResult) -> list[OpResult]:
    """The ops in the order in which they are issued; of several layers those of one within."""
    layer = min(SHOWN_LAYER, result.num_simulated)
    return [op for op in result.simulated.ops if op.name == in_layer(own_name(op.name), layer)]


def _chart(result: LayersResult, shown: Sequence[OpResult]) -> Iterator[str]:
    """A line for each op over time, at rank 0: where its kernels run, where its copies do, and where both."""
    begin, end = min(op.begin_ticks for op in shown), max(op.end_ticks for op in shown)
    width = max(len(op.name) for op in shown)
    cells = columns() - width - 2
    yield from wrapped("Over time, = kernels, - copies, # both:")
    for op in shown:
        own = [one for one in result.simulated.whole.timeline.of_rank(0) if one.name.partition(".")[0] == op.name]
        line = ""
        for cell in range(cells):
            low, high = (begin + (end - begin) * edge // cells for edge in (cell, cell + 1))
            here = {one.kind is IntervalKind.COMM for one in own if one.start_ticks < high and one.end_ticks > low}
            line += _MARKS[frozenset(here)]
        yield f"{op.name:<{width}}  {line}".rstrip()


def _table(scenario: GraphScenario, shown: Sequence[OpResult]) -> Iterator[str]:
    """The ops with their times in us."""
    labels = labels_of(scenario.graph, 1 + max(batch_of(op.name) for op in shown))
    name_width = max(len("op, us"), *(len(op.name) for op in shown))
    label_width = max(len("pattern"), *(len(labels[own_name(op.name)]) for op in shown))
    yield f"{'op, us':<{name_width}}  {'pattern':<{label_width}}" + "".join(f"{figure:>9}" for figure in _FIGURES)
    for op in shown:
        ticks = (op.begin_ticks, op.end_ticks, op.compute_ticks, op.comm_ticks, op.exposed_ticks)
        figures = "".join(f"{each / TICKS_PER_US:>9.1f}" for each in ticks)
        yield f"{op.name:<{name_width}}  {labels[own_name(op.name)]:<{label_width}}{figures}"


def graph_schedules_text(scenario: GraphScenario, bound: Bound) -> str:
    """Return the ops of a graph, its declared schedules, and the lower bound with its terms."""
    return "\n".join(_schedules(scenario, bound))


def _schedules(scenario: GraphScenario, bound: Bound) -> Iterator[str]:
    yield from wrapped(graph_line(scenario))
    yield ""
    width = max(len(op.name) for op in scenario.graph.ops)
    for op in scenario.graph.ops:
        made = dict.fromkeys(read.tensor for read in op.reads if read.made_by)
        reads = f" reads {', '.join(made)}" if made else ""
        yield from hanging(f"  {op.name:<{width}}  {op.label}{reads}", width + 4)
    yield ""
    batch, counts = scenario.graph.batch, ", ".join(map(str, batch_counts(scenario.graph)))
    if batch is not None:
        yield from wrapped(f"Batches, of sequences of {batch.rows} rows of {', '.join(batch.inputs)}: {counts}.")
    names = [choice.name for choice in scenario.schedules]
    yield from wrapped(f"Schedules: {', '.join(names) or 'none is declared'}; serial is always there.")
    yield from wrapped(f"Lower bound {ticks_text(bound.ticks)}, bound by {bound.binding}:")
    for name, ticks, text in bound.terms:
        yield from bullet("*" if name == bound.binding else "-", f"{name} {ticks_text(ticks)}: {text}")
    yield "Assumptions of the bound:"
    for text in bound.assumptions:
        yield from bullet("-", text)
