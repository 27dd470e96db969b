"""Workloads that are steps: which layers repeat forward and backward, of how many sequences, with which optimizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...codes import Code
from ...ir import DType, Op, Pattern, Scenario, Schedule, Shard, System, Workload, without_batch
from ...ir.step import LayerBlock, LayerPart, Optimizer, Step
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.names import Entry
from ...text.vocabulary import MAX_EXTENT, STEP_WORDS
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_word, one_of, said_in, single
from ..workloads.call_arguments import is_tensor

STEP, THEN = "step", "then"
_EXAMPLE = "step layer, back"


def is_step(declaration: ast.Declaration) -> bool:
    """Whether a workload is a step of layers."""
    if not isinstance(declaration, ast.WorkloadNode):
        return False
    return any(head_word(each) == STEP for each in declaration.block.statements)


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A workload forward and its backward pass, empty where that is derived."""

    forward: ast.Name
    backward: ast.Name | None


@dataclass(frozen=True, slots=True)
class StepText:
    """What the block of a step says, before the workloads that it names are looked at.

    ``blocks`` have the parts of each block of layers, and the place of its statement; ``span`` is of sequences.
    """

    about: str
    blocks: tuple[tuple[tuple[NamedPart, ...], Span], ...]
    sequences: int
    length: int
    vocabulary: int
    optimizer: Optimizer
    span: Span

    @property
    def parts(self) -> Iterator[NamedPart]:
        """The parts of all blocks."""
        return (part for parts, _ in self.blocks for part in parts)


class StepTextReader:
    """Reads the block of a step."""

    def __init__(self, entry: Entry, reading: Reading) -> None:
        self._entry, self._report, self._reading = entry, reading.report, reading.inside(entry.scope)

    def read(self) -> StepText:
        """Return what it says."""
        declaration, failures = self._entry.workload, self._report.num_failures
        text = StepText("", (), 0, 0, 0, Optimizer(), declaration.system.span)
        seen = set[str]()
        for word, statement in said_in(declaration.block, STEP_WORDS, "a step", self._report, (STEP,)):
            seen.add(word)
            with self._report.attempt():
                text = self._statement(word, statement, text)
        if "sequences" not in seen and self._report.num_failures == failures:
            message = f"{self._entry.name} does not say its sequences"
            self._report.error(Code.MGS209, message, declaration.system.span, "sequences 128 x 8192")
        if self._report.num_failures > failures or self._report.has_errors:
            raise self._report.stop()
        return text

    def _statement(self, word: str, statement: ast.Say, text: StepText) -> StepText:
        words = behind(statement, self._report)
        match word:
            case "about":
                about = words.only("a text")
                if not isinstance(about, ast.Text):
                    raise self._report.fail(Code.MGS116, "about says a text", about.span, 'about "a step"')
                return replace(text, about=about.value)
            case "step":
                return replace(text, blocks=(*text.blocks, (self._parts(words), statement.span)))
            case "sequences":
                count = self._whole("sequences", words.take("how many sequences"))
                words.need("x", "'x' and a length are missing", "128 x 8192")
                length = self._whole("length", words.only("tokens of a sequence"))
                return replace(text, sequences=count, length=length, span=statement.span)
            case "head":
                return replace(text, vocabulary=self._whole("head", words.only("the size of the vocabulary")))
            case _:
                return replace(text, optimizer=self._optimizer(words))

    def _parts(self, words: Words) -> tuple[NamedPart, ...]:
        """Read ``layer``, ``layer, back`` or ``attention, attention_back then experts, experts_back``."""
        parts: list[NamedPart] = []
        while True:
            forward = words.take_name("a workload")
            backward = words.take_name("its backward pass") if words.skip_comma() else None
            parts.append(NamedPart(forward, backward))
            if not words.take_word(THEN):
                words.end((THEN,))
                return tuple(parts)

    def _optimizer(self, words: Words) -> Optimizer:
        call = words.only("an optimizer")
        name = call.function if isinstance(call, ast.Call) else call
        if not isinstance(name, ast.Name) or name.text != "adam":
            message = f"unknown optimizer '{name.span.text[:40]}'"
            raise self._report.fail(Code.MGS204, message, name.span, "adam(gradients=fp32, master=fp32)")
        known, given = ("gradients", "master", "moments"), dict[str, DType]()
        types = [dtype.value for dtype in DType]
        for argument in call.arguments if isinstance(call, ast.Call) else ():
            if argument.name not in known:
                hint = did_you_mean(argument.name or "", known) or f"it has: {listing(known)}"
                raise self._report.fail(Code.MGS201, "adam says the types of its numbers", argument.span, hint)
            written = single(argument.values, self._report, in_call=True)
            given[argument.name] = DType(one_of(types, written, "type", self._report, f"types are {listing(types)}"))
        return Optimizer(**given)

    def _whole(self, what: str, written: ast.Expression) -> int:
        return self._reading.count(what, 1, MAX_EXTENT, written)


def derived_backward(part: NamedPart, forward: ast.WorkloadNode, keep: Sequence[str], span: Span) -> ast.WorkloadNode:
    """The declaration of the backward pass of ``forward``, which keeps the results of these names, said at ``span``."""

    def say(*words: str, separated: bool = False) -> ast.Say:
        names = [ast.Name(word, span=span) for word in words]
        groups = ((names[0], *names[1:2]), *((name,) for name in names[2:])) if separated else (tuple(names),)
        return ast.Say(tuple(ast.GroupNode(parts, span=span) for parts in groups), span=span)

    statements = (say("backward", part.forward.text), *((say("keep", *keep, separated=True),) if keep else ()))
    return ast.WorkloadNode(f"{forward.name}_back", forward.system, ast.BlockNode(statements, span=span), span=span)


def summed_once(backward: Scenario, forward: Scenario) -> Scenario:
    """Return a backward pass that leaves parts of gradients of whole weights on their ranks.

    A step sums them once behind all microbatches, with those of the other ranks that hold these weights; what a
    schedule says of such a sum is left out.
    """
    made = {name for name, _, _ in forward.workload.results}
    made |= set() if forward.workload.repeat is None else {forward.workload.repeat.as_input}
    whole = {f"d_{each.name}" for each in forward.workload.tensors if each.shard is Shard.NONE}
    whole -= {f"d_{name}" for name in made}
    sums = {op.name for op in backward.workload.ops if op.shape.pattern is Pattern.GEMM_AR and op.name in whole}
    parts = {name for name, op, _ in backward.workload.results if op in sums and name != op}

    def of_own_rows(op: Op) -> Op:
        tensors = tuple(each for each in op.shape.tensors if each.name not in parts)
        shape = replace(op.shape, pattern=Pattern.GEMM, tensors=tensors, moved=None, output=op.name, made=(op.name,))
        return replace(op, shape=shape)

    def without_sums(workload: Workload) -> Workload:
        ops = tuple(of_own_rows(op) if op.name in sums else op for op in workload.ops)
        tensors = tuple(each for each in workload.tensors if each.name not in parts)
        results = tuple(each for each in workload.results if each[0] not in parts)
        cuts = () if workload.batch is None else workload.batch.cuts
        own = tuple((count, without_sums(cut)) for count, cut in cuts)
        batch = None if workload.batch is None else replace(workload.batch, cuts=own)
        return replace(workload, ops=ops, tensors=tensors, results=results, batch=batch)

    def of_others(schedule: Schedule) -> Schedule:
        modes = tuple(each for each in schedule.modes if without_batch(each.op) not in sums)
        names = ((name, *name.partition(".")[::2]) for name in schedule.order)
        order = tuple(name for name, op, half in names if not half or without_batch(op) not in sums)
        return replace(schedule, modes=modes, order=order)

    schedules = tuple(map(of_others, backward.schedules)) if sums else backward.schedules
    return replace(backward, workload=without_sums(backward.workload), schedules=schedules)


def results_of(forward: ast.WorkloadNode) -> tuple[str, ...]:
    """The names that a workload gives to what it makes."""
    defined = (each for each in forward.block.statements if isinstance(each, ast.Define))
    return tuple(each.name for each in defined if not is_tensor(each))


def assembled(
    text: StepText,
    system: System,
    num_stages: int,
    parts: dict[str, LayerPart],
    report: Report,
) -> Step:
    """Return the step of the workloads in ``parts``, by the names of their forward passes, if they fit each other."""
    blocks: list[LayerBlock] = []
    for named, span in text.blocks:
        of_block = tuple(parts[part.forward.text] for part in named)
        blocks.append(LayerBlock(of_block, _layers(of_block, span, report)))
    rows = [(part.forward.name, _rows_of_rank(part.forward)) for block in blocks for part in block.parts]
    for other in rows[1:]:
        if other[1] != rows[0][1]:
            said = " and ".join(f"{_text(tokens)} tokens in {name}" for name, tokens in (other, rows[0]))
            message = f"a rank has {said}"
            raise report.fail(Code.MGS570, message, text.span, "a microbatch is the same in all layers")
    _check_sequences(text, [part.forward for block in blocks for part in block.parts], report)
    at_once = rows[0][1] * (system.num_ranks // num_stages)
    microbatches = text.sequences * text.length / at_once
    if microbatches.denominator != 1:
        message = f"{text.sequences} sequences of {text.length} are {_text(microbatches)} microbatches"
        hint = f"the ranks of a stage take {_text(at_once)} tokens at once"
        raise report.fail(Code.MGS570, message, text.span, hint)
    if microbatches > text.sequences:
        message = f"{_text(microbatches)} microbatches are more than {text.sequences} sequences"
        hint = f"a microbatch has {_text(at_once)} tokens, and a sequence {text.length:,}"
        raise report.fail(Code.MGS570, message, text.span, hint)
    sizes = text.sequences, text.length, int(microbatches), text.vocabulary
    return Step(text.about, tuple(blocks), *sizes, text.optimizer)


def _check_sequences(text: StepText, layers: Sequence[Scenario], report: Report) -> None:
    """Check that attention sees whole sequences, no two of them as one, and what ranks have of one together."""
    for layer in layers:
        for each in layer.workload.attention:
            rows, span = each.batch * each.q_len * each.context, text.span
            if rows < text.length:
                message = f"attention of {layer.name} has {rows:,} positions of a sequence of {text.length:,}"
                hint = "a microbatch has whole sequences, or ranks share one: attention(..., over=cp)"
                raise report.fail(Code.MGS570, message, span, hint)
            if each.q_len * each.context > text.length and each.context == 1:
                message = f"attention of {layer.name} sees {each.q_len:,} positions as one sequence of {text.length:,}"
                raise report.fail(Code.MGS570, message, span, f"sequences of their own: batch x by {text.length}")
        for each in layer.workload.in_context:
            if each.context * each.q_len != text.length:
                positions = f"{each.context} x {each.q_len:,} positions of {each.over}"
                message = f"attention of {layer.name} sees {positions}, and a sequence has {text.length:,}"
                hint = f"rows and batches of a layer are divided by {each.over}: batch x by {text.length} / CP"
                raise report.fail(Code.MGS570, message, text.span, hint)


def _rows_of_rank(forward: Scenario) -> Fraction:
    """Tokens of a microbatch for each rank of a group."""
    repeat = forward.workload.repeat
    assert repeat is not None, "layers repeat"
    return Fraction(forward.workload.tensor(repeat.as_input).rows, forward.num_ranks)


def _layers(parts: Sequence[LayerPart], span: Span, report: Report) -> int:
    counts = []
    for part in parts:
        for scenario in (part.forward, *(each for _, each in part.backward)):
            if scenario.workload.repeat is None:
                hint = "a step repeats its layers: repeat 80 y as x"
                raise report.fail(Code.MGS570, f"{scenario.name} does not say how many layers there are", span, hint)
            counts.append((scenario.workload.num_layers, scenario.name))
    for count, name in counts:
        if count != counts[0][0]:
            message = f"{name} has {count} layers, {counts[0][1]} has {counts[0][0]}"
            raise report.fail(Code.MGS570, message, span, "workloads of one step are of the same layers")
    return counts[0][0]


def _text(number: Fraction | int) -> str:
    return f"{float(number):,.2f}".rstrip("0").rstrip(".")
