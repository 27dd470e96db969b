"""Blocks of an implementation in the order of its parents, and the block of one kernel for the experts of a layer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...ir import (
    TICKS_PER_SECOND,
    ExchangeKernel,
    FusedExperts,
    Implementation,
    Method,
    OpCase,
    Rejection,
    Stack,
    System,
    Workload,
)
from ...planning.knobs.library import exchange_on, library_rejection
from ...text import syntax as ast
from ...text.diagnostics import did_you_mean, listing
from ...text.names import Entry
from ...text.vocabulary import EXPERTS_NUMBERS
from ..devices.device_blocks import BlockReader
from ..values.device_numbers import Default, DeviceNumbers, NumberWithOrigin
from ..values.evaluate import Place, Reading

EXPERTS, STACK = "experts", "stack"
_OF_THE_NUMBERS = ("error", "shortest", "most_rows")
_EXAMPLE = "start 60 us; flops 2000 TFLOP/s; memory 6 TB/s; exponent 2; block 16; weight 1; ..."


@dataclass(frozen=True, slots=True)
class Layer:
    """The statement of a block in one implementation ``entry``, and the origin of its numbers without notes."""

    entry: Entry
    statement: ast.Say
    default: Default


def read_experts(layers: Sequence[Layer], reading: Reading) -> tuple[FusedExperts, DeviceNumbers]:
    """Return the kernel and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
    figures, _ = _figures(layers, EXPERTS, reading)
    report = reading.report
    lacking = [each.name for each in EXPERTS_NUMBERS if each.required and each.name not in figures]
    if lacking:
        message = f"{EXPERTS} of {layers[-1].entry.name} does not say its {lacking[0]}"
        raise report.fail(Code.MGS209, message, layers[-1].statement.span, f"for instance: {EXPERTS} {{ {_EXAMPLE} }}")
    numbers = DeviceNumbers(figures)
    least, most = numbers.whole("least_ranks"), numbers.whole("most_ranks")
    if least > most:
        raise report.fail(Code.MGS314, "least_ranks is above most_ranks", figures["least_ranks"].span, "swap them")
    rates = {"flops_per_s": numbers.whole("flops"), "hbm_bytes_per_s": numbers.whole("memory")}
    return numbers.filled(FusedExperts, "", block_rows=numbers.whole("block"), **rates), numbers


def read_stack(layers: Sequence[Layer], reading: Reading) -> tuple[Stack, DeviceNumbers]:
    """Return a stack and its numbers; ``layers`` are those of the parents and of the child, which comes last."""
    figures, words = _figures(layers, STACK, reading)
    compared = figures["error"].source if "error" in figures else ""
    exact = {name: each.value.amount for name, each in figures.items()}
    plain = words.get("plain_experts") == ("yes",)
    return Stack(**exact, plain_experts=plain, compared=compared), DeviceNumbers(figures)


def _figures(
    layers: Sequence[Layer], word: str, reading: Reading
) -> tuple[dict[str, NumberWithOrigin], dict[str, tuple[str, ...]]]:
    """The numbers and words of a block over those of its parents, to which they may refer."""
    report, failures_before = reading.report, reading.report.num_failures
    figures, words = dict[str, NumberWithOrigin](), dict[str, tuple[str, ...]]()
    for layer in layers:
        figures = {name: each for name, each in figures.items() if name not in _OF_THE_NUMBERS}
        if layer.statement.block is None:
            hint = f"write: {word} {{ {_EXAMPLE if word == EXPERTS else 'forward_rows 1; backward_rows 12'} }}"
            raise report.fail(Code.MGS116, f"{word} opens a block", layer.statement.span, hint)
        place = Place(layer.entry.scope, base={name: each.value for name, each in figures.items()} or None)
        block = BlockReader(replace(reading, place=place))
        if word == STACK:
            block.simple(word, layer.statement.block, word, layer.default)
        else:
            block.numbers(layer.statement.block, EXPERTS_NUMBERS, "", word, layer.default)
        owner = f"{layer.entry.name}.{word}"
        figures |= {name: replace(each, owner=owner) for name, each in block.figures.items()}
        words |= block.words
    if report.num_failures > failures_before:
        raise report.stop()
    return figures, words


# Whose kernels send the rows of a workload to experts and back: those that it names, else the fastest that are known.
#
# Frameworks have dispatches and combines of their own, and take no all_to_all of the library for them. So does what
# other schedules are compared with.


def with_exchange(
    system: System, workload: Workload, by: str, known: Mapping[str, Implementation]
) -> System | Rejection:
    """``system`` with the kernels of the implementation ``by`` for the dispatches and combines of ``workload``.

    Empty, it is the fastest of ``known`` that is known for all of them; the system as it is where there is none, or
    where ``by`` is the library. Else why ``by`` cannot be.
    """
    cases = [OpCase(op.name, system, op.shape) for op in workload.ops if op.shape.routing is not None]
    exchanging = {name: each for name, each in known.items() if any(method.routed for method in each.methods)}
    if not by:
        found = [each for each in exchanging.values() if not any(_rejections(each, cases))]
        systems = [_with_kernels(system, each) for each in found if system.gpu.name in each.gpus]
        return min(systems, key=lambda each: _ticks(each, cases), default=system)
    if by not in known or not (by in exchanging or any(method.is_library for method in known[by].methods)):
        here = [name for name, each in known.items() if name not in exchanging or system.gpu.name in each.gpus]
        hint = did_you_mean(by, known) or f"known on {system.gpu.name} are: {listing(sorted({*exchanging} & {*here}))}"
        return Rejection(Code.MGS203, f"'{by[:64]}' is no implementation that sends rows to experts", hint)
    if by not in exchanging:
        return system
    chosen = exchanging[by]
    if system.gpu.name not in chosen.gpus:
        message, hint = f"{by} is known on {listing(chosen.gpus)}", "implementation mine extends it { gpus ... }"
        return Rejection(Code.MGS530, f"{message}, not on {system.gpu.name}", hint)
    return next(_rejections(chosen, cases), None) or _with_kernels(system, chosen)


def _rejections(implementation: Implementation, cases: Iterable[OpCase]) -> Iterator[Rejection]:
    for case in cases:
        unfit = not_measured(implementation, case) or reject_exchange(implementation.method_of(case.shape), case)
        if unfit is not None:
            yield unfit


def reject_exchange(method: Method | None, case: OpCase) -> Rejection | None:
    """Why nothing is known of a method's own kernel for a dispatch or combine, None if it is known."""
    kernel, routing = None if method is None else method.routed, case.shape.routing
    if kernel is None or routing is None:
        return Rejection(Code.MGS530, "its exchange is known of dispatch and combine")
    if not kernel.least_ranks <= case.num_ranks <= kernel.most_ranks:
        known = f"{kernel.least_ranks} to {kernel.most_ranks}"
        return Rejection(Code.MGS530, f"its exchange was measured on {known} GPUs")
    if routing.top < kernel.least_top:
        return Rejection(Code.MGS530, f"its exchange is known from {kernel.least_top} experts of a row on")
    return library_rejection(replace(case, system=with_routed(case.system, (kernel,))))


def not_measured(implementation: Implementation, case: OpCase) -> Rejection | None:
    """Why nothing is known of a method for the like of an op: another GPU or type, more rows or GPUs; None if it is."""
    method, shape = implementation.method_of(case.shape), case.shape
    gemm, routing, moved = shape.gemm, shape.routing, shape.moved
    dtype = gemm.dtype if gemm is not None else moved.dtype if routing is not None and moved is not None else None
    if method is None or dtype is None:
        return None
    rows = gemm.m if gemm is not None else routing.rows if routing is not None else 0
    fits = (
        case.gpu.name in (method.gpus or (case.gpu.name,)),
        dtype in (method.dtypes or (dtype,)),
        rows <= (method.most_rows or rows),
        method.has_ranks(case.num_ranks),
    )
    if all(fits):
        return None
    known = [", ".join(method.gpus), ", ".join(each.value for each in method.dtypes)]
    known.append("" if method.most_rows is None else f"up to {method.most_rows:,} rows")
    known.append("" if method.most_ranks is None else f"up to {method.most_ranks} GPUs")
    message = f"{shape.pattern.value} is not known here: it was measured on {', '.join(filter(None, known))}"
    return Rejection(Code.MGS530, message)


def _with_kernels(system: System, implementation: Implementation) -> System:
    return with_routed(system, tuple(each.routed for each in implementation.methods if each.routed is not None))


def with_routed(system: System, routed: tuple[ExchangeKernel, ...]) -> System:
    """The system with these kernels of dispatch and combine beside its library, if it has one."""
    library = system.gpu.collectives
    if library is None:
        return system
    return replace(system, gpu=replace(system.gpu, collectives=replace(library, routed=routed)))


def _ticks(system: System, cases: Iterable[OpCase]) -> Fraction:
    """The time of all exchanges one after the other, each by the kernel for it."""
    total = Fraction(0)
    for case in cases:
        kernel, routing, moved = exchange_on(system, case.shape), case.shape.routing, case.shape.moved
        assert kernel is not None and routing is not None and moved is not None, "such implementations were left out"
        fixed, num_bytes = kernel.split(system.num_ranks, moved.num_bytes, *routing.counts)
        total += kernel.start_ticks + fixed + num_bytes * TICKS_PER_SECOND / kernel.bytes_per_s
    return total
