"""``batch x by 4096``: rows of a workload that may be computed apart, and the workload of one batch of several.

Rows are sequences of so many rows each. That says what attention sees, in one batch as in two, and where a schedule may
cut. The calls of the workload are inferred once more on the rows of a batch, so that every shape is checked again.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...codes import Code
from ...ir import Rejection, Repeat, Shard, System, Tensor
from ...ir.operations import OperationError
from ...ir.operations.base import mismatch
from ...text import syntax as ast
from ...text.diagnostics import Report, Span
from ...text.vocabulary import MAX_BATCHES, MAX_EXTENT
from ..values.evaluate import Reading
from ..values.words import behind
from .calls import ATTENTION, EXPERTS, GEMM, CallOperand, WorkloadCall, call_of

_EXAMPLE = "batch x by 4096"
_COUNTS = ("rows", "rows_to")


@dataclass(frozen=True, slots=True)
class BatchSaid:
    """The statement: tensors that are cut, each of sequences of ``rows`` rows, and where it stands."""

    inputs: tuple[ast.Name, ...]
    rows: int
    span: Span

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors."""
        return tuple(name.text for name in self.inputs)


def read_batch(statement: ast.Say, reading: Reading) -> BatchSaid:
    """Read ``batch x, h by 4096``."""
    report = reading.report
    words = behind(statement, report)
    names: dict[str, ast.Name] = {}
    for value in words.take_list("an input"):
        if not isinstance(value, ast.Name):
            raise report.fail(Code.MGS116, "the name of a tensor is expected here", value.span, _EXAMPLE)
        names[value.text] = value
    if words.take_word("by") is None:
        raise report.fail(Code.MGS116, "'by' and the rows of a sequence are missing", statement.span, _EXAMPLE)
    rows = reading.count("rows of a sequence", 1, MAX_EXTENT, words.only("a number of rows"))
    return BatchSaid(tuple(names.values()), rows, statement.span)


Cut = tuple[dict[str, WorkloadCall], dict[str, Tensor]]
"""The calls of a workload, and all its tensors, by name."""


def batches_of(
    calls: Mapping[str, WorkloadCall],
    tensors: Mapping[str, Tensor],
    said: BatchSaid,
    repeat: Repeat | None,
    system: System,
    report: Report,
) -> tuple[Cut, tuple[tuple[int, Cut], ...]]:
    """The workload in one batch, and one batch of several, for each number of them that is possible."""
    try:
        sequences = _num_sequences(said, tensors)
        one, cut = _batch(calls, tensors, said, 1, system)
        if repeat is not None and (repeat.as_input in cut) is not (repeat.result in cut):
            message = f"{repeat.result} of one layer is {repeat.as_input} of the next, and only one of them is cut"
            raise mismatch(message, f"batch {repeat.as_input} by {said.rows}")
        cuts = []
        for count in range(2, MAX_BATCHES + 1):
            if sequences % count == 0:
                with suppress(_NotDivided):
                    cuts.append((count, _batch(calls, tensors, said, count, system)[0]))
        return one, tuple(cuts)
    except OperationError as error:
        rejection = error.rejection
        hint = rejection.hint or "batch names every tensor whose rows are cut"
        raise report.fail(rejection.code, rejection.message, said.span, hint) from None


class _NotDivided(Exception):
    """A number of batches that is not possible."""


def _num_sequences(said: BatchSaid, tensors: Mapping[str, Tensor]) -> int:
    """The number of sequences in each of the tensors; fewer rows than one has are one that is shorter.

    Rows that went to several experts are several times as many.
    """
    first, *others = (tensors[name] for name in said.names)
    for other in others:
        if other.rows % first.rows:
            message = f"{other.name} has {other.rows} rows and {first.name} {first.rows}"
            raise mismatch(message, "a batch takes the same rows of all, or as many times those of the first")
    return _sequences(first.rows, said.rows, f"{first.name} has")


def _sequences(rows: int, sequence: int, of: str) -> int:
    if rows > sequence and rows % sequence:
        message = f"{of} {rows} rows, which are no whole sequences of {sequence}"
        raise OperationError(Rejection(Code.MGS304, message, "batch x by N: N divides the rows"))
    return max(1, rows // sequence)


def _batch(
    calls: Mapping[str, WorkloadCall], tensors: Mapping[str, Tensor], said: BatchSaid, batches: int, system: System
) -> tuple[Cut, set[str]]:
    """One of so many batches, and the tensors whose rows are cut."""
    made: dict[str, WorkloadCall] = {}
    found, cut = dict(tensors), set(said.names)
    for name in said.names:
        found[name] = replace(tensors[name], rows=tensors[name].rows // batches)
    for name, call in calls.items():
        operands = tuple(replace(each, tensor=found[each.tensor.name]) for each in call.operands)
        arguments = call.arguments
        if _is_cut(call, cut):
            cut.add(name)
            arguments = _arguments(call, operands, said.rows, batches, system)
        made[name] = _again(call, operands, arguments, made, system, batches)
        found[name] = made[name].result
    return (made, found), cut


def _again(
    call: WorkloadCall,
    operands: tuple[CallOperand, ...],
    arguments: Mapping[str, Any],
    makers: Mapping[str, WorkloadCall],
    system: System,
    batches: int,
) -> WorkloadCall:
    """The call on other operands."""
    try:
        where = call.definition, call.span
        return call_of(call.operation, call.name, operands, arguments, makers, system, *where)
    except OperationError as error:
        if batches > 1 and error.rejection.code is Code.MGS304:
            raise _NotDivided from None
        raise


def cut_tensors(calls: Sequence[WorkloadCall], inputs: Sequence[str]) -> set[str]:
    """The tensors whose rows are cut where those of ``inputs`` are."""
    cut = set(inputs)
    for call in calls:
        if _is_cut(call, cut):
            cut.add(call.name)
    return cut


def _is_cut(call: WorkloadCall, cut: set[str]) -> bool:
    """Whether rows of what a call makes are those of a batch; a product over rows is a sum over them instead."""
    first = call.operands[0]
    return first.tensor.name in cut and not (call.operation.name in (GEMM, EXPERTS) and first.transposed)


def _arguments(
    call: WorkloadCall, operands: Sequence[CallOperand], sequence: int, batches: int, system: System
) -> Mapping[str, Any]:
    """The arguments of a call on a batch: sequences that attention sees, and shares of counted rows."""
    arguments = dict(call.arguments)
    if call.operation.name in ATTENTION and "batch" in arguments:
        arguments["batch"] = _share(arguments["batch"], batches)
    elif call.operation.name in ATTENTION:
        layout = operands[-1].seen
        rows = layout.rows // system.num_ranks if layout.shard is Shard.ROWS else layout.rows
        if batches > 1 and rows < sequence <= rows * batches:
            raise _NotDivided
        arguments["batch"] = _sequences(rows, sequence, f"attention of {layout.name} sees on a rank")
    if batches > 1 and "routing" in arguments and arguments["routing"].name == "loads":
        raise _NotDivided
    for word in _COUNTS:
        if word in arguments:
            arguments[word] = _share(arguments[word], batches)
    return arguments


def _share(value: Any, batches: int) -> Any:
    """Equal parts of counts, in lists too."""
    if isinstance(value, tuple):
        return tuple(_share(each, batches) for each in value)
    if value % batches:
        raise _NotDivided
    return value // batches
