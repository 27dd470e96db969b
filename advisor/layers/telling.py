"""What each op does in a joint schedule and why: who hides its copies, which pair is not cut, what is left to see."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ...compiler.ir import TICKS_PER_US, Graph, GraphChoice, OpMode, Plan
from ...compiler.planning.expression import expression_of
from ...compiler.planning.graph_expression import whole_text
from ...compiler.planning.graph_layers import in_layer
from ...compiler.text.diagnostics import listing
from ...compiler.text.quantities import us_text
from ...simcore.figures.result import Interval, IntervalKind, Result
from ...simcore.figures.spans import overlap_ticks, total_ticks, union_of
from ...simcore.simulate_layers import SHOWN_LAYER
from ..candidates.advice import OpAdvice
from ..candidates.candidate import Candidate
from .way import Way, fastest_alone

APART = "apart"

LEAST_SHARE = 0.1
"""Least share of the time of copies that a kernel hides to be named."""

LEAST_GAIN = 0.005
"""Least difference in time that is worth a sentence."""

WORTH = 1.02
"""Least gain of an op alone by its own best that is worth a sentence."""


def ops_of(
    graph: Graph, ways: Mapping[str, Sequence[Way]], choice: GraphChoice, result: Result
) -> tuple[OpAdvice, ...]:
    """Return what the ops of ``graph`` do in ``choice``, in the order in which they begin.

    ``graph`` is written out in the batches of the choice; of layers that repeat it is one that has neighbours.
    """
    layer = min(SHOWN_LAYER, result.num_simulated)
    timeline = result.timeline
    of_parts: dict[str, list[Interval]] = {}
    for each in timeline.of_rank(0):
        of_parts.setdefault(_op(each.name), []).append(each)
    kernels = [each for each in timeline.of_rank(0) if each.kind is not IntervalKind.COMM]
    modes = {mode.op: mode for mode in choice.modes}
    found = []
    for op in graph.ops:
        times = result.op(in_layer(op.name, layer))
        copies = [each for each in of_parts.get(times.name, ()) if each.kind is IntervalKind.COMM]
        of = ways.get(op.name, ())
        best = fastest_alone(of) if len(of) > 1 else None
        mode = modes.get(op.name, OpMode(op.name))
        whole = next((way.total for way in of if way.is_apart), 0)
        differs = best is not None and best.mode != mode
        found.append(
            OpAdvice(
                op.name,
                op.label,
                f"along {op.takes_rows_of}" if op.name in choice.along else _how(op.is_pair, mode),
                times.begin_ticks,
                times.end_ticks,
                times.comm_ticks,
                times.exposed_ticks,
                tuple(_hidden_by(copies, kernels, layer)),
                _how(op.is_pair, best.mode) if best is not None and differs else "",
                best.total if best is not None else 0,
                whole,
            )
        )
    return tuple(sorted(found, key=lambda each: each.begin_ticks))


def _op(step: str) -> str:
    return step.partition(".")[0]


def _how(is_pair: bool, mode: OpMode) -> str:
    if mode.apart is not None:
        return f"{APART} by {whole_text(mode.apart)}"
    if mode.body is None:
        return "serial" if is_pair else ""
    return "a plan written out" if isinstance(mode.body, Plan) else expression_of(mode.body)


def _hidden_by(copies: Sequence[Interval], kernels: Sequence[Interval], layer: int) -> Iterator[tuple[str, float]]:
    """The ops whose kernels run while copies do, with their shares of the time of the copies, the largest first."""
    moments, own_kernels = union_of(copies), dict[str, list[Interval]]()
    for kernel in kernels:
        own_kernels.setdefault(_op(kernel.name), []).append(kernel)
    beside = {name: overlap_ticks(moments, union_of(those)) for name, those in own_kernels.items()}
    shares = Counter({name: ticks / total_ticks(moments) for name, ticks in beside.items() if ticks})
    for name, share in shares.most_common():
        if share >= LEAST_SHARE:
            own, _, number = name.partition("@")
            later = int(number or 1) - layer
            where = "" if later == 0 else " of the next layer" if later > 0 else " of the layer before"
            yield f"{own}{where}", share


def slowly(ways: Mapping[str, Sequence[Way]], choice: GraphChoice) -> Iterator[str]:
    """Yield why collectives are slower than they could be, where some are."""
    modes = set(choice.modes)
    names = [name for name, of in ways.items() if any(way.is_paced and way.mode in modes for way in of)]
    if names:
        are = "is" if len(names) == 1 else "are"
        yield f"{listing(names)} {are} copied slowly: kernels beside such copies wait less for the network on chip."


def reasons_for(
    ops: Sequence[OpAdvice], recommended: Candidate, in_turn: Candidate | None, kernels_ticks: int
) -> Iterator[str]:
    """Yield why: the pairs that are not cut, those that are cut otherwise than alone, and what remains exposed."""
    for op in ops:
        hidden = " and ".join(f"{name} ({share:.0%})" for name, share in op.hidden_by[:2])
        where = f"its copies run under {hidden}" if hidden else "its copies run beside no kernel"
        if op.how.startswith(APART):
            yield f"{op.name} is not cut: {where}{_alone_sentence(op)}."
        elif _alone_sentence(op):
            yield f"{op.name} is {op.how}: {where}{_alone_sentence(op)}."
        elif op.comm_ticks and not op.whole_ticks and op.hidden_by:
            yield f"{op.name} moves under {hidden}."
    if 0 < kernels_ticks <= recommended.ticks:  # they are simulated in packets, in which small kernels may be slower
        over = recommended.ticks / kernels_ticks - 1
        yield f"all kernels alone take {us_text(kernels_ticks / TICKS_PER_US)}: the schedule takes {over:.1%} more."
    gain = 1.0 if in_turn is None else in_turn.ticks / recommended.ticks
    if in_turn is not None and abs(gain - 1) >= LEAST_GAIN:
        yield f"each pair's own best, one after the other, takes {us_text(in_turn.best_us)}, {gain:.2f}x as long."


def _alone_sentence(op: OpAdvice) -> str:
    """What is best for a pair alone, where it gains something and is not what the pair does here."""
    gain = op.whole_ticks / op.alone_ticks if op.alone_ticks else 1.0
    if not op.alone or gain < WORTH:
        return ""
    times = f"{us_text(op.alone_ticks / TICKS_PER_US)} against {us_text(op.whole_ticks / TICKS_PER_US)} whole"
    return f"; alone {op.alone} is best, {times}"
