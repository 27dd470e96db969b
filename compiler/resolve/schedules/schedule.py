"""Schedules of a workload: ``schedule s for w = shard_p2p()`` of one op, ``schedule s for w { ... }`` of any."""

from collections.abc import Iterable
from typing import Any

from ...codes import Code
from ...ir import (
    EngineChoice,
    EngineKind,
    EngineMode,
    GroupEngine,
    GroupKernel,
    OpCase,
    OpChoice,
    OpMode,
    Schedule,
    System,
    Workload,
    WrittenPlan,
)
from ...planfile.file import imported
from ...planning import knobs
from ...planning.build import options_of
from ...planning.knobs import Knob
from ...planning.knobs.base import (
    MAX_COUNT,
    CountValues,
    EngineValues,
    Lists,
    NameValues,
    SizeValues,
    TileValues,
    WordValues,
)
from ...planning.knobs.engine import ENGINE, MODES, default_engine, reject_engine, tiles_engine
from ...planning.knobs.structure import CHUNKS, STREAMS, TEMPLATE
from ...templates import BASELINE, BY_NAME, Template
from ...text import syntax as ast
from ...text.diagnostics import did_you_mean, listing
from ...text.names import Kind
from ...text.vocabulary import MAX_EXTENT, SCHEDULE_WORDS, SYNONYMS
from ..values.evaluate import Reading
from ..values.words import head_word, one_of, single


class ChoiceReader:
    """Reads templates and engines for one system; ``kernels`` are known beside those of the place."""

    def __init__(self, system: System, reading: Reading, kernels: Iterable[GroupKernel] = ()) -> None:
        self._system, self._reading, self._report = system, reading, reading.report
        self._scope, self._kernels = reading.place.scope, {kernel.name: kernel for kernel in kernels}

    @property
    def num_ranks(self) -> int:
        """The number of GPUs of the system."""
        return self._system.num_ranks

    def choice(self, template: ast.TemplateNode) -> OpChoice:
        """Read ``uniform_fused_1d(chunks=64, engine=dma(7))`` and fill in what is not said."""
        expression = single(template.values, self._report)
        arguments: tuple[ast.Argument, ...] = ()
        match expression:
            case ast.Name():
                name = expression
            case ast.Call(function=ast.Name() as name):
                arguments = expression.arguments
            case _:
                hint = f"for instance serial(); templates are {listing(BY_NAME)}"
                raise self._report.fail(Code.MGS116, "a template is expected here", expression.span, hint)
        self.check_template(name)
        chosen, ranks = BY_NAME[name.text], self._system.num_ranks
        said = self._arguments(chosen, arguments)
        chunks = chosen.default_pieces * ranks if chosen.cuts_shards else ranks
        usual: dict[Knob, Any] = {CHUNKS: chunks, ENGINE: self.default_engine(), STREAMS: chosen.default_streams}
        own = {knob.field: value for knob, value in (usual | said).items() if not knob.option}
        options = options_of({knob: value for knob, value in said.items() if knob.option})
        return OpChoice(chosen.name, tactics=options, **own)

    def whole(self, by: ast.Expression | None) -> OpChoice:
        """Read how a collective is carried out as a whole: ``dma(7)``, ``direct(chunks=64, engine=dma(1))``; None."""
        match by:
            case ast.Name(text=word) | ast.Call(function=ast.Name(text=word)) if word in BY_NAME:
                return self.choice(ast.TemplateNode("schedule", ast.Path((word,)), (by,), span=by.span))
        engine = self.default_engine() if by is None else self.engine(by)
        return OpChoice(BASELINE.name, self.num_ranks, engine)

    def _arguments(self, template: Template, arguments: tuple[ast.Argument, ...]) -> dict[Knob, Any]:
        """The value of each knob that an argument says."""
        said: dict[Knob, Any] = {}
        for argument in arguments:
            knob = self._knob(template, argument, said)
            value = single(argument.values, self._report, in_call=True)
            if not knob.has(template) and knob is not CHUNKS:
                names = [each.name for each in BY_NAME.values() if knob.has(each)]
                message = f"{template.name} takes no {knob.word}"
                raise self._report.fail(Code.MGS201, message, argument.span, f"templates that do: {listing(names)}")
            said[knob] = self.value(knob, value)
        return said

    def value(self, knob: Knob, value: ast.Expression) -> Any:
        """Read one value of a knob."""
        match knob.values:
            case EngineValues():
                return self.engine(value)
            case CountValues(most=most):
                return self._reading.count(knob.word, 1, most, value)
            case SizeValues() as sizes:
                return sizes.shorten(self._lists(knob.word, sizes, value))
            case TileValues():
                return self._tile(value)
            case WordValues() | NameValues() as known:
                return known.value_of(self.word(knob.word, value, known.words))

    def _tile(self, value: ast.Expression) -> tuple[int, ...]:
        """Read ``[128, 256]``."""
        if not isinstance(value, ast.Listed) or len(value.items) != 2:
            raise self._report.fail(Code.MGS116, "a tile has rows and columns", value.span, "tile=[128, 256]")
        return tuple([self._reading.count("a side of a tile", 1, MAX_EXTENT, item) for item in value.items])

    def _lists(self, word: str, sizes: SizeValues, value: ast.Expression) -> Lists:
        """Read ``[[512, 0], [0, 256], [0, 256]]``."""
        if not isinstance(value, ast.Listed) or not value.items:
            raise self._report.fail(Code.MGS116, f"{word} are a list of lists", value.span, sizes.example)
        return tuple([self._sizes(word, sizes, item) for item in value.items])

    def _sizes(self, word: str, sizes: SizeValues, value: ast.Expression) -> tuple[int, ...]:
        if not isinstance(value, ast.Listed) or not (value.items or sizes.empty):
            what = f"{word} of a part are a list of sizes" if sizes.empty else "a part is a list of rows"
            raise self._report.fail(Code.MGS116, what, value.span, sizes.example)
        return tuple([self._reading.count(sizes.one, 0, MAX_EXTENT, item) for item in value.items])

    def word(self, argument: str, value: ast.Expression, known: tuple[str, ...]) -> str:
        """Read one of the words that ``argument`` may be."""
        return one_of(known, value, argument, self._report)

    def check_template(self, name: ast.Name) -> str:
        """Return the name of a template that exists."""
        if name.text not in BY_NAME:
            hint = did_you_mean(name.text, BY_NAME) or f"templates are {listing(BY_NAME)}"
            if name.text == "program":
                hint = "a program is a schedule of a file: schedule mine for w = program(NAME)"
            raise self._report.fail(Code.MGS505, f"unknown template '{name.text[:64]}'", name.span, hint)
        return name.text

    def default_engine(self) -> EngineChoice:
        """One copy engine per peer, as far as the GPU has that many."""
        return default_engine(self._system)

    def engine(self, expression: ast.Expression) -> EngineChoice:
        """Read ``dma``, ``dma(7)``, ``sm(8)``, ``sm(8, shared)`` or ``sm(tiles)``."""
        match expression:
            case ast.Name(text="dma"):
                return self.default_engine()
            case ast.Call(
                function=ast.Name(text="sm"),
                arguments=(ast.Argument(name=None, values=(ast.Name(text=EngineMode.TILES.value),)),),
            ):
                return tiles_engine(self._system.gpu)
            case ast.Call(
                function=ast.Name(text="sm"), arguments=(ast.Argument(name=None, values=(ast.Name() as kernel,)),)
            ) if self._is_kernel(kernel):
                return self._of_kernel(kernel)
            case ast.Call(
                function=ast.Name(text="dma" | "sm" as word),
                arguments=(ast.Argument(name=None) as argument, *more),
            ) if len(more) <= 1:
                said = single(argument.values, self._report, in_call=True)
                count = self._reading.count("a count of engines", 1, MAX_COUNT, said)
                engine = EngineChoice(EngineKind(word), count, self._mode(word, more))
                unfit = reject_engine(self._system.gpu, engine)
                if unfit is not None:
                    span = more[0].span if more and unfit.code is Code.MGS407 else expression.span
                    raise self._report.refuse(unfit, span)
                return engine
            case ast.Name(text="sm"):
                raise self._report.fail(Code.MGS116, "sm says how many SMs copy", expression.span, "for instance sm(8)")
            case _:
                kernels = self._scope.names(Kind.KERNEL)
                hint = "engines are dma, dma(7), sm(8), sm(tiles), and with a mode dma(7, channels) or sm(8, shared)"
                if expression.span.text in kernels:
                    hint = f"a kernel is named as sm({expression.span.text})"
                raise self._report.fail(
                    Code.MGS204, f"unknown engine '{expression.span.text[:40]}'", expression.span, hint
                )

    def _is_kernel(self, name: ast.Name) -> bool:
        """Whether ``sm(NAME)`` names a kernel, or what is none: a value is a number of SMs."""
        entry = self._scope.lookup((name.text,))
        return entry is None or entry.kind not in (Kind.LET, Kind.PARAM)

    def program(self, template: ast.TemplateNode, case: OpCase | None) -> WrittenPlan | None:
        """Read ``program(ring)``, what the work-groups of a kernel of the file do; None if it is a template.

        Without a ``case``, which has errors, it stops there.
        """
        match template.values:
            case (ast.Call(function=ast.Name(text="program"), arguments=arguments),):
                pass
            case _:
                return None
        match arguments:
            case (ast.Argument(name=None, values=(ast.Name() as name,)),):
                pass
            case _:
                raise self._report.fail(Code.MGS116, "program names a kernel", template.values[0].span, "program(NAME)")
        if case is None:
            raise self._report.stop()
        from .group_kernel import GroupKernelReader
        from .group_program import ProgramReader

        engine = self._of_kernel(name)
        entry = self._scope.find(name, Kind.KERNEL, self._report)
        chunks, block = GroupKernelReader(self._reading).program(entry)
        return ProgramReader(case, engine, chunks, self._reading.inside(entry.scope)).read(name, block)

    def _of_kernel(self, name: ast.Name) -> GroupEngine:
        """Read ``sm(pull)``, a kernel of the file."""
        from .group_kernel import GroupKernelReader  # few files have one

        kernel = self._kernels.get(name.text)
        if kernel is None:
            kernel = GroupKernelReader(self._reading).read(self._scope.find(name, Kind.KERNEL, self._report))
        engine = GroupEngine(EngineKind.SM, kernel.groups, program=kernel)
        self._report.require(reject_engine(self._system.gpu, engine), name.span)
        return engine

    def _mode(self, kind: str, more: list[ast.Argument]) -> EngineMode:
        if not more:
            return EngineMode.OWN
        value = single(more[0].values, self._report, in_call=True)
        if more[0].name is not None:
            raise self._report.fail(Code.MGS201, "the mode of an engine has no name", more[0].span, f"{kind}(8)")
        known = tuple(mode.value for modes in MODES.values() for mode in modes)
        return EngineMode(self.word("mode", value, known))

    def _knob(self, template: Template, argument: ast.Argument, said: dict[Knob, Any]) -> Knob:
        """The knob that an argument names, for the first time."""
        name, known = argument.name, {knob.word: knob for knob in knobs.KNOBS if knob is not TEMPLATE}
        if name is None:
            hint = f"for instance {template.name}(chunks=64, engine=dma)"
            raise self._report.fail(Code.MGS116, "arguments of a template are named", argument.span, hint)
        if name not in known:
            hint = did_you_mean(name, known) or f"arguments are {listing(known)}"
            raise self._report.fail(Code.MGS201, f"a template has no argument '{name[:64]}'", argument.span, hint)
        if known[name] in said:
            raise self._report.fail(Code.MGS206, f"{name} is said twice", argument.span)
        return known[name]


_EXAMPLE = "schedule NAME for LAYER { u = hetero_fused_1d(chunks=16); separate y by dma(7); order u, y }"


class ScheduleReader:
    """Reads the schedules of one workload on ``system``, whose ``workload`` is None if it has errors.

    ``as_written`` means that no parameter of the file is set from outside.
    """

    def __init__(self, system: System, workload: Workload | None, reading: Reading, *, as_written: bool) -> None:
        self._system, self._graph, self._as_written = system, workload, as_written
        self._reading, self._report = reading, reading.report
        self._choices = ChoiceReader(system, reading)

    def read(self, declaration: ast.TemplateNode | ast.PlanNode) -> Schedule | None:
        """Return a schedule, None for an outline that does not fit.

        Raises
        ------
        Stopped
            If it could not be read; what is wrong is reported.
        """
        path, workload = imported(declaration, self._report), self._graph
        if isinstance(declaration, ast.TemplateNode) and path is None and (workload is None or len(workload.ops) == 1):
            return self._chosen(declaration, workload)
        if workload is None:
            raise self._report.stop()
        if isinstance(declaration, ast.PlanNode) and self._is_of_ops(workload, declaration.block):
            from .block import ScheduleBlockReader  # few files have one: the others do not wait for its import

            with_choices = (self._choices, self._reading)
            reader = ScheduleBlockReader(self._system, workload, *with_choices, as_written=self._as_written)
            return reader.read(declaration)
        plan = self._plan(workload, declaration, path)
        return None if plan is None else Schedule(declaration.name, (OpMode(workload.ops[0].name, plan),))

    def _chosen(self, declaration: ast.TemplateNode, workload: Workload | None) -> Schedule | None:
        """Read a template or a program, of the one op."""
        shape = None if workload is None else workload.only_shape
        case = None if workload is None or shape is None else OpCase(workload.name, self._system, shape)
        how = self._choices.program(declaration, case) or self._choices.choice(declaration)
        if workload is None:
            raise self._report.stop()
        return Schedule(declaration.name, (OpMode(workload.ops[0].name, how),))

    def _plan(
        self, graph: Workload, declaration: ast.TemplateNode | ast.PlanNode, path: ast.Text | None
    ) -> WrittenPlan | None:
        """Read a plan of the one op."""
        workload = graph.only_shape
        if workload is None:
            assert isinstance(declaration, ast.TemplateNode), "a block of a workload that is no lone op is of ops"
            message = f"{graph.name} has {len(graph.ops)} ops: its schedule is a block"
            raise self._report.fail(Code.MGS116, message, declaration.values[0].span, _EXAMPLE)
        from .plan import WrittenReader  # as ``ScheduleBlockReader``

        reader = WrittenReader(self._choices, self._reading, as_written=self._as_written)
        return reader.read(OpCase(graph.name, self._system, workload), declaration, path)

    @staticmethod
    def _is_of_ops(workload: Workload, block: ast.BlockNode) -> bool:
        """Whether a block says how ops are carried out and in which order, and not how the lone one is."""
        if workload.only_shape is None:
            return True
        name, heads = workload.ops[0].name, [head_word(each) for each in block.statements]
        if "plan" in heads:
            return False
        known = {*SCHEDULE_WORDS, *(old for old, new in SYNONYMS.items() if new in SCHEDULE_WORDS)} - {"order"}
        defines = any(isinstance(each, ast.Define) and each.name == name for each in block.statements)
        return defines or any(head == name or head in known for head in heads)
