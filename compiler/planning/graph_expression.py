"""Schedules of graphs as text: the block that a file declares, and one line that is their identity."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from ..codes import Code
from ..ir import Choice, GraphChoice, OpMode, Plan, Rejection, Seams
from ..templates import BASELINE
from .build import ScheduleError
from .expression import expression_of


def graph_choice_text(choice: GraphChoice, graph_name: str) -> str:
    """``schedule NAME for GRAPH { ... }``, which compiles to a choice equal to ``choice``.

    Raises
    ------
    ScheduleError
        If an op has a plan written out, which a block of a graph has no words for.
    """
    lines = "".join(f"  {statement}\n" for statement in _statements(choice))
    return f"schedule {choice.name} for {graph_name} {{{chr(10) if lines else ' '}{lines}}}\n"


def graph_expression_of(choice: GraphChoice) -> str:
    """What ``choice`` says, on one line, without its name: the same for choices that say the same in another order.

    Raises
    ------
    ScheduleError
        As ``graph_choice_text``.

    >>> from ..ir import Choice, EngineChoice, EngineKind
    >>> serial = OpMode("y", Choice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
    >>> graph_expression_of(GraphChoice("mine", (serial,), low=("y",), seams=Seams.WHOLE))
    '{ y = serial(engine=dma(7)); priority y low; seams whole }'
    """
    statements = "; ".join(_statements(_sorted(choice)))
    return f"{{ {statements} }}" if statements else "{ }"


def _sorted(choice: GraphChoice) -> GraphChoice:
    """``choice`` with everything sorted whose order says nothing; ops that are apart stand together."""
    return replace(
        choice,
        modes=tuple(sorted(choice.modes, key=lambda mode: (mode.apart is not None, str(mode.apart), mode.op))),
        streams=tuple(sorted(choice.streams, key=lambda pair: (pair[1], pair[0]))),
        beside=tuple(sorted(choice.beside, key=lambda pair: (pair[1], pair[0]))),
        low=tuple(sorted(choice.low)),
        along=tuple(sorted(choice.along)),
    )


def _statements(choice: GraphChoice) -> Iterator[str]:
    if choice.batches > 1:
        yield f"batches {choice.batches}"
    for apart, modes in groupby(choice.modes, key=lambda mode: mode.apart):
        if apart is None:
            yield from (f"{mode.op} = {_body_text(mode)}" for mode in modes if mode.body is not None)
        else:
            yield f"apart {_listed(mode.op for mode in modes)} by {whole_text(apart)}"
    if choice.along:
        yield f"along {_listed(choice.along)}"
    if choice.order:
        yield f"order {_listed(choice.order)}"
    if choice.late:
        yield f"late {_listed(choice.late)}"
    for stream, ops in groupby(choice.streams, key=lambda pair: pair[1]):
        if stream:  # 0 is the main one, where kernels run anyhow
            yield f"stream {stream} {_listed(name for name, _ in ops)}"
    for kernel, pairs in groupby(choice.beside, key=lambda pair: pair[1]):
        yield f"beside {kernel} {_listed(name for name, _ in pairs)}"
    if choice.ahead:
        yield f"ahead {choice.ahead}"
    if choice.sums_first or choice.low:
        yield f"priority {_listed((*(['sums'] if choice.sums_first else []), *(f'{name} low' for name in choice.low)))}"
    if choice.seams is not Seams.ROWS:
        yield f"seams {choice.seams.value}"


def whole_text(choice: Choice) -> str:
    """How a collective is carried out as a whole: by its engine where that is all there is to say."""
    usual = Choice(BASELINE.name, choice.chunks, choice.engine)
    return str(choice.engine) if choice == usual else expression_of(choice)


def _body_text(mode: OpMode) -> str:
    if isinstance(mode.body, Plan):
        message = f"{mode.op} has a plan written out, which a schedule of a graph has no words for"
        raise ScheduleError(Rejection(Code.MGS509, message, "write the plan of the graph as JSON"))
    assert mode.body is not None, "modes without a body are as usual, and left out"
    return expression_of(mode.body)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
