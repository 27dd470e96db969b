"""Advice on a graph as plain text: the answer, what it is compared with, what each op does, why, and the schedule."""

import shlex
from collections.abc import Iterator, Sequence

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...advisor.layers.offers.transformer_engine import NAME as TE
from ...compiler.ir import OF_LAYERS, TICKS_PER_US
from ...compiler.planning.graph_expression import graph_choice_text
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.text.quantities import us_text
from .graph import OTHER_LAYERS, graph_line
from .render import implementation_lines
from .table import table_lines
from .wrap import bullet, hanging, wrapped


def graph_advice_text(advice: Advice, source: Sequence[str]) -> str:
    """Return the whole answer; ``source`` are the words that name the graph on the command line."""
    return "\n".join(_lines(advice, source))


def graph_verdict_sentence(advice: Advice) -> str:
    """Return the answer in a sentence."""
    best, serial = advice.recommended, advice.serial
    against = f"{us_text(serial.best_us)} {advice.against}"
    if best.expression == serial.expression:
        found = (
            "nothing that was found until the stop gains" if advice.interrupted else "no schedule that was found gains"
        )
        return f"Do not overlap: {best.expression} takes {us_text(best.best_us)}, and {found} enough."
    words = {Verdict.OVERLAP: "Overlap", Verdict.WORTH_TRYING: "Worth trying", Verdict.SERIAL: "Do not overlap"}
    word = words.get(advice.verdict, "Use another algorithm")
    low_high = "" if advice.interval is None else f" ({advice.interval[0]:.2f}x to {advice.interval[1]:.2f}x)"
    outside = f"; {advice.promise.outside}" if advice.promise is not None and advice.promise.outside else ""
    return (
        f"{word}: {best.expression} takes {us_text(best.best_us)} against {against}, "
        f"{advice.speedup:.2f}x faster{low_high}{outside}."
    )


def _lines(advice: Advice, source: Sequence[str]) -> Iterator[str]:
    yield from wrapped(graph_line(advice.scenario))
    if advice.scenario.graph.about:
        yield from wrapped(advice.scenario.graph.about)
    yield ""
    yield from wrapped(graph_verdict_sentence(advice))
    yield from wrapped(f"Confidence {advice.confidence.value}: {advice.confidence_reason}.")
    yield from wrapped(_searched_sentence(advice))
    for mark in advice.marks:
        yield from bullet("!", mark)
    yield ""
    yield from _candidates(advice)
    if advice.bound is not None:
        gap = (
            ""
            if advice.gap_to_bound is None
            else f"; {advice.recommended.expression} is {advice.gap_to_bound:.1%} above it"
        )
        bound = f"lower bound {us_text(advice.bound.ticks / TICKS_PER_US)}, bound by {advice.bound.binding}{gap}"
        yield from wrapped(bound)
    if advice.ops:
        yield ""
        yield from _ops(advice)
    if advice.offers is not None:
        yield ""
        yield from implementation_lines(advice.offers)
    yield from ("", "Why:") if advice.reasons else ()
    for reason in advice.reasons:
        yield from bullet("-", reason)
    yield from _schedule(advice, source)


def _searched_sentence(advice: Advice) -> str:
    best = advice.recommended
    searched = f"{advice.searched} schedules were simulated"
    if best.result is None or best.unit_bytes is None:
        return f"{searched}, a few layers each."
    whole = best.result.simulated.whole
    layers = f", all {advice.scenario.num_layers} layers" if advice.scenario.num_layers > 1 else ""
    return f"{searched}; those without ~ at {whole.granularity} granularity ({best.unit_bytes} B){layers}."


def _candidates(advice: Advice) -> Iterator[str]:
    """A row for each schedule: the recommended one is marked, estimates have a tilde."""
    rows: list[tuple[Sequence[str], str]] = [(("", "schedule", "us", "gain"), "what it is")]
    offered = () if advice.offers is None else advice.offers.offers  # their times, with other costs, are told below
    tables = {offer.order.schedule for offer in offered if offer.name in OF_LAYERS and offer.order is not None}
    for each in advice.candidates:
        best = each.expression == advice.recommended.expression
        if each.expression in tables and not best:
            continue
        mark = ">" if best else "!" if each.side_by_side else "=" if each.expression in advice.ties else ""
        rows.append(((mark, each.expression, _time(each), f"{advice.serial.ticks / each.ticks:.2f}x"), each.what))
    yield from table_lines(rows, words=(0, 1))
    if any(each.result is not None and each.is_estimate for each in advice.candidates):
        yield from wrapped(f"~ of all layers from those that were simulated and show no period: {OTHER_LAYERS}")
    yield from wrapped(f"> recommended, = tie; gain over {advice.baseline}")
    if any(each.side_by_side for each in advice.candidates):
        yield from wrapped("! kernels share the SMs, to which no profile is fitted: never recommended")


def _time(candidate: Candidate) -> str:
    return f"{'~' if candidate.is_estimate else ''}{candidate.best_us:.1f}"


def _ops(advice: Advice) -> Iterator[str]:
    """A row for each op, by the time at which it begins."""
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


def _schedule(advice: Advice, source: Sequence[str]) -> Iterator[str]:
    """The schedule as a block to paste, unless the file has it, and what to do with it."""
    best = advice.recommended
    declared = best.joint in advice.scenario.schedules or advice.verdict is Verdict.SERIAL
    if not declared:
        yield from ("", "As a block for the file:", "")
        for line in graph_choice_text(best.joint, advice.scenario.name).splitlines():
            yield from hanging(line.strip(), 6, line[: len(line) - len(line.lstrip())])
    yield from ("", "Next:")
    at_line = best.unit_bytes == advice.scenario.system.gpu.line_bytes
    granularity = () if at_line else ("--granularity", "packet")
    simulate = shlex.join(["magus", "simulate", *source, "--schedule", best.expression, *granularity])
    first = "" if declared else "with the block in the file, "
    yield from bullet("-", f"{first}see what runs when: {simulate}")
    offer = advice.offer(TE)
    if offer is not None and offer.promise.verdict is not Verdict.SERIAL:
        export = shlex.join(["magus", "export", *source, "--to", "megatron", "-o", "overlap.yaml"])
        yield from bullet("-", f"write the table for Transformer Engine: {export}")
