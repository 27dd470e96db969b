"""``backward layer``: a workload that is the backward pass of another one, derived as statements.

The statements are those that a text could hold: they are resolved as any others, and ``magus fmt --derived`` prints
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...codes import Code
from ...ir.operations import OPERATIONS
from ...text import syntax as ast
from ...text.diagnostics import Report, Source, Span, did_you_mean, listing
from ...text.names import Entry, Kind, Scope
from ...text.vocabulary import BACKWARD_WORDS
from ..devices.device import DeviceResolver
from ..devices.system import SystemResolver
from ..values.evaluate import ExpressionEvaluator, Place, Reading
from ..values.words import behind, head_of, head_word
from .backward_pass import BackwardPass, Derived, Forward, NoGradientError
from .backward_rules import COMBINE, DISPATCH, RULES, SyntaxWriter, why_not
from .batches import cut_tensors
from .calls import CallOperand, WorkloadCall
from .workload import WorkloadReader, is_backward

BACKWARD, KEEP = BACKWARD_WORDS
_EXAMPLE = "backward layer"


class BackwardReader:
    """Reads workloads that are derived from others."""

    def __init__(self, systems: SystemResolver, reading: Reading) -> None:
        self._systems, self._reading, self._report = systems, reading, reading.report

    def written_out(self, entry: Entry) -> Entry:
        """The workload of ``entry`` with the statements that it stands for."""
        declaration = entry.workload
        abouts, derived = self.derived(entry)
        block = replace(declaration.block, statements=(*abouts, *derived.statements))
        return replace(entry, declaration=replace(declaration, block=block))

    def derived(self, entry: Entry) -> tuple[tuple[ast.Say, ...], Derived]:
        """What ``entry`` says beside, and the statements that it stands for."""
        failures = self._report.num_failures
        said: dict[str, ast.Say] = {}
        for statement in entry.workload.block.statements:
            with self._report.attempt():
                word = self._word(statement)
                if word in said:
                    raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
                assert isinstance(statement, ast.Say), "a definition has no place here"
                said[word] = statement
        if BACKWARD not in said and self._report.num_failures == failures:
            raise self._report.fail(Code.MGS209, "keep is about a backward pass", said[KEEP].span, _EXAMPLE)
        if self._report.num_failures > failures:
            raise self._report.stop()
        forward, span = self._forward(entry, said[BACKWARD])
        kept = self._kept(said[KEEP], forward) if KEEP in said else {}
        abouts = tuple(each for word, each in said.items() if word not in BACKWARD_WORDS)
        reserved = entry.scope.names(Kind.LET, Kind.PARAM)
        try:
            return abouts, BackwardPass(forward, kept, reserved, SyntaxWriter(span)).derive()
        except NoGradientError as error:
            raise self._report.fail(Code.MGS520, str(error), span, _WRITE) from None

    def _word(self, statement: ast.Define | ast.Say) -> str:
        word = head_of(statement) if isinstance(statement, ast.Say) else None
        known = ("about", *BACKWARD_WORDS)
        if word is None or word.text not in known:
            text = statement.name if isinstance(statement, ast.Define) else statement.span.text
            message = f"'{text[:40]}' beside a backward pass, which is derived"
            guess = did_you_mean(word.text, known) if word is not None else ""
            hint = guess or "magus fmt --derived writes it out, to be edited"
            raise self._report.fail(Code.MGS201, message, statement.span, hint)
        return word.text

    def _forward(self, entry: Entry, statement: ast.Say) -> tuple[Forward, Span]:
        words = behind(statement, self._report)
        name = words.take_name("a workload")
        words.end()
        other = entry.scope.find(name, Kind.WORKLOAD, self._report)
        declaration, span = other.workload, statement.span
        if is_backward(declaration):
            what = "itself" if other is entry else f"'{name.text}', which is one"
            raise self._report.fail(Code.MGS520, f"a backward pass of {what}", span, "name a forward pass")
        system = self._systems.of_workload(other)
        report = self._report.beside()
        reader = WorkloadReader(other, system, self._systems.whole_system(other), replace(self._reading, report=report))
        with report.trial():
            reader.read()
        if report.num_failures:  # what is wrong with it is told at its own statements
            raise self._report.stop()
        calls = _as_written(reader)
        for call in calls:
            why = why_not(call, calls)
            if why:
                where = f"'{call.definition}' on line {call.span.location.line}"
                hint = f"write the backward pass out; known are those of {listing(RULES)}"
                raise self._report.fail(Code.MGS520, f"{why}: {where} of {name.text}", span, hint)
        return _read(reader, calls, declaration), span

    def _kept(self, statement: ast.Say, forward: Forward) -> dict[str, SyntaxWriter]:
        words = behind(statement, self._report)
        kept: dict[str, SyntaxWriter] = {}
        results = [call.name for call in forward.calls if call.name == call.definition]
        for part in words.take_list("a result of the forward pass"):
            text = part.text if isinstance(part, ast.Name) else ""
            if text in forward.inputs:
                self._report.warn(Code.MGS212, f"'{text}' is an input, which is held anyway", part.span)
                continue
            if text in kept:
                raise self._report.fail(Code.MGS206, f"'{text}' is kept twice", part.span)
            if text not in results:
                hint = did_you_mean(text, results) or f"results are {listing(results)}"
                message = f"the forward pass has no result '{part.span.text[:40]}'"
                raise self._report.fail(Code.MGS203, message, part.span, hint)
            kept[text] = SyntaxWriter(part.span)
        words.end()
        return kept


_WRITE = "write the backward pass out"


def _as_written(reader: WorkloadReader) -> tuple[WorkloadCall, ...]:
    """The calls as the text has them: one for all that a dispatch or a combine is made of."""
    known = {operation.name: operation for operation in OPERATIONS}
    calls: list[WorkloadCall] = []
    operands: tuple[CallOperand, ...] = ()
    for call in reader.calls:
        operands = operands or call.operands
        written = reader.written.get(call.name)
        if written is not None:
            operation = known[written.function.span.text]
            calls.append(replace(call, operation=operation, operands=operands))
            operands = ()
    return tuple(calls)


def _dispatch_of(calls: Sequence[WorkloadCall]) -> dict[str, WorkloadCall]:
    """The dispatch of each combine: the last one before it with the same routing."""
    found: dict[str, WorkloadCall] = {}
    for place, call in enumerate(calls):
        if call.operation.name == COMBINE:
            sent = (each for each in reversed(calls[:place]) if each.operation.name == DISPATCH)
            found[call.name] = next(each for each in sent if each.exchange == call.exchange)
    return found


def _read(reader: WorkloadReader, calls: tuple[WorkloadCall, ...], declaration: ast.WorkloadNode) -> Forward:
    """What the resolver has read, with sizes and arguments as the text has them."""
    made = {call.name for call in reader.calls}
    statements = {each.name: each for each in declaration.block.statements if isinstance(each, ast.Define)}
    inputs = {}
    for tensor in reader.tensors:
        if tensor.name not in made:
            shape = statements[tensor.name].phrase[0].parts[1]
            assert isinstance(shape, ast.Index), "a tensor was read"
            inputs[tensor.name] = (tensor, (shape.subscripts[0], shape.subscripts[1]))
    arguments = {name: tuple(each for each in call.arguments if each.name) for name, call in reader.written.items()}
    forward = Forward(inputs, calls, arguments, reader.repeat, _dispatch_of(calls))
    if reader.batch is None:
        return forward
    sequence = _batch_of(declaration).phrase[-1].parts[-1]
    return replace(forward, cut=frozenset(cut_tensors(calls, reader.batch.names)), sequence=sequence)


def _batch_of(declaration: ast.WorkloadNode) -> ast.Say:
    """The statement of batches, which was read."""
    said = (each for each in declaration.block.statements if isinstance(each, ast.Say))
    return next(each for each in said if head_word(each) == "batch")


def with_derived(source: Source, scope: Scope, report: Report) -> str:
    """The canonical text of ``source``, whose ``scope`` has no errors, with what it derives in place of the request."""
    reading = Reading(Place(scope), ExpressionEvaluator(report, {}), report)
    reader = BackwardReader(SystemResolver(reading, DeviceResolver(reading)), reading)
    changes: list[tuple[int, int, str]] = []
    for entry in scope.of_kind(Kind.WORKLOAD):
        declaration = entry.workload
        if declaration.span.source is source and is_backward(declaration):
            lines = "\n".join(_lines(reader.derived(entry)[1]))
            for statement in declaration.block.statements:
                word = head_word(statement)
                if word != "about":
                    written = "\n" if word == KEEP else f"{lines}\n"
                    changes.append((statement.span.start, statement.span.end, written))
    from ...text.fmt import format_text  # for this alone

    text = source.text
    for start, end, written in sorted(changes, reverse=True):
        text = text[:start] + written + text[end:]
    return format_text(text, source.path)


def _lines(derived: Derived) -> Iterator[str]:
    from ...text.fmt import phrase

    for block in (derived.tensors, derived.ops):
        for statement in block:
            note = derived.notes.get(statement.name, "")
            yield f"{statement.name} = {phrase(statement.phrase)}" + (f"  # {note}" if note else "")
        yield ""
    yield from (phrase(statement.phrase) for statement in derived.layers)
