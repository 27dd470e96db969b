"""Blocks of an implementation in the order of its parents, and the block of one kernel for the experts of a layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...ir import FusedExperts, Stack
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.names import Entry
from ...text.vocabulary import EXPERTS_NUMBERS, STACK_NUMBERS, Property
from ..devices.device_blocks import BlockReader
from ..values.device_numbers import Default, DeviceNumbers, FigureReader, NumberWithOrigin
from ..values.evaluate import ExpressionEvaluator, Place

EXPERTS, STACK = "experts", "stack"
_OF_THE_NUMBERS = ("error", "shortest", "most_rows")
_EXAMPLE = "start 60 us; flops 2000 TFLOP/s; memory 6 TB/s; exponent 2; block 16; weight 1; ..."


@dataclass(frozen=True, slots=True)
class Layer:
    """The statement of a block in one implementation ``entry``, and the origin of its numbers without notes."""

    entry: Entry
    statement: ast.Say
    default: Default


def read_experts(
    layers: Sequence[Layer], evaluator: ExpressionEvaluator, report: Report
) -> tuple[FusedExperts, DeviceNumbers]:
    """Return the kernel and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
    failures_before, figures = report.num_failures, dict[str, NumberWithOrigin]()
    for layer in layers:
        figures = {name: each for name, each in figures.items() if name not in _OF_THE_NUMBERS}
        figures |= _figures(layer, EXPERTS, EXPERTS_NUMBERS, figures, evaluator, report)
    if report.num_failures > failures_before:
        raise report.stop()
    lacking = [each.name for each in EXPERTS_NUMBERS if each.required and each.name not in figures]
    if lacking:
        message = f"{EXPERTS} of {layers[-1].entry.name} does not say its {lacking[0]}"
        hint = f"for instance: {EXPERTS} {{ {_EXAMPLE} }}"
        raise report.fail(Code.MGS209, message, layers[-1].statement.span, hint)
    numbers = DeviceNumbers(figures)
    least, most = numbers.whole("least_ranks"), numbers.whole("most_ranks")
    if least > most:
        raise report.fail(Code.MGS314, "least_ranks is above most_ranks", figures["least_ranks"].span, "swap them")
    return _kernel(numbers, least, most), numbers


def read_stack(layers: Sequence[Layer], evaluator: ExpressionEvaluator, report: Report) -> tuple[Stack, DeviceNumbers]:
    """Return a stack and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
    failures_before, figures = report.num_failures, dict[str, NumberWithOrigin]()
    for layer in layers:
        figures = {name: each for name, each in figures.items() if name not in _OF_THE_NUMBERS}
        figures |= _figures(layer, STACK, STACK_NUMBERS, figures, evaluator, report)
    if report.num_failures > failures_before:
        raise report.stop()
    compared = figures["error"].source if "error" in figures else ""
    exact = {name: each.value.amount for name, each in figures.items()}
    return Stack(**exact, compared=compared), DeviceNumbers(figures)


def _figures(
    layer: Layer,
    word: str,
    numbers: tuple[Property, ...],
    before: dict[str, NumberWithOrigin],
    evaluator: ExpressionEvaluator,
    report: Report,
) -> dict[str, NumberWithOrigin]:
    """The numbers of one block, which may refer to those of its parents."""
    if layer.statement.block is None:
        hint = f"write: {word} {{ {_EXAMPLE if word == EXPERTS else 'forward_rows 1; backward_rows 12'} }}"
        raise report.fail(Code.MGS116, f"{word} opens a block", layer.statement.span, hint)
    place = Place(layer.entry.scope, base={name: each.value for name, each in before.items()} or None)
    block = BlockReader(report, FigureReader(report, evaluator), place)
    block.numbers(layer.statement.block, numbers, "", word, layer.default)
    return {name: replace(each, owner=f"{layer.entry.name}.{word}") for name, each in block.figures.items()}


def _kernel(numbers: DeviceNumbers, least_ranks: int, most_ranks: int) -> FusedExperts:
    exact: dict[str, Fraction] = {name: each.value.amount for name, each in numbers.by_path.items()}
    return FusedExperts(
        numbers.ticks("start"),
        numbers.whole("flops"),
        numbers.whole("memory"),
        exact["exponent"],
        numbers.whole("block"),
        exact["weight"],
        least_ranks,
        most_ranks,
        numbers.ticks_if("rank") or 0,
        numbers.whole_if("most_rows"),
        exact.get("error"),
        numbers.ticks_if("shortest") or 0,
    )
