"""Schedules of a workload: ``schedule s for w = shard_p2p()`` of one op, ``schedule s for w { ... }`` of any."""

from ...codes import Code
from ...ir import Graph, GraphChoice, OpMode, Plan, Scenario, System
from ...planfile.file import imported
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.vocabulary import SCHEDULE_WORDS
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import head_word
from .template import ChoiceReader

_EXAMPLE = "schedule NAME for LAYER { u = hetero_fused_1d(chunks=16); apart y by dma(7); order u, y }"


class ScheduleReader:
    """Reads the schedules of one workload on ``system``, whose ``graph`` is None if it has errors.

    ``as_written`` means that no parameter of the file is set from outside.
    """

    def __init__(
        self,
        system: System,
        graph: Graph | None,
        place: Place,
        evaluator: ExpressionEvaluator,
        report: Report,
        *,
        as_written: bool,
    ) -> None:
        self._system, self._graph = system, graph
        self._place, self._evaluator, self._report = place, evaluator, report
        self._as_written = as_written
        self._choices = ChoiceReader(system, place, evaluator, report)

    def read(self, declaration: ast.Template | ast.Plan) -> GraphChoice | None:
        """Return a schedule, None for an outline that does not fit.

        Raises
        ------
        Stopped
            If it could not be read; what is wrong is reported.
        """
        path, graph = imported(declaration, self._report), self._graph
        if isinstance(declaration, ast.Template) and path is None and (graph is None or len(graph.ops) == 1):
            choice = self._choices.choice(declaration)
            if graph is not None:
                return GraphChoice(declaration.name, (OpMode(graph.ops[0].name, choice),))
        if graph is None:
            raise self._report.stop()
        if isinstance(declaration, ast.Plan) and self._is_of_ops(graph, declaration.block):
            from .block import ScheduleBlockReader  # few files have one: the others do not wait for its import

            with_choices = (self._choices, self._place, self._evaluator, self._report)
            return ScheduleBlockReader(self._system, graph, *with_choices, as_written=self._as_written).read(
                declaration
            )
        plan = self._plan(graph, declaration, path)
        return None if plan is None else GraphChoice(declaration.name, (OpMode(graph.ops[0].name, plan),))

    def _plan(self, graph: Graph, declaration: ast.Template | ast.Plan, path: ast.Text | None) -> Plan | None:
        """Read a plan of the one op."""
        workload = graph.pair
        if workload is None:
            assert isinstance(declaration, ast.Template), "a block of a workload that is no lone op is of ops"
            message = f"{graph.name} has {len(graph.ops)} ops: its schedule is a block"
            raise self._report.fail(Code.MGS116, message, declaration.values[0].span, _EXAMPLE)
        from .written import WrittenReader  # as ``ScheduleBlockReader``

        with_choices = (self._choices, self._place, self._evaluator, self._report)
        reader = WrittenReader(*with_choices, as_written=self._as_written)
        return reader.read(Scenario(graph.name, self._system, workload), declaration, path)

    @staticmethod
    def _is_of_ops(graph: Graph, block: ast.Block) -> bool:
        """Whether a block says how ops are carried out and in which order, and not how the lone one is."""
        if graph.pair is None:
            return True
        name, heads = graph.ops[0].name, [head_word(each) for each in block.statements]
        if "plan" in heads:
            return False
        defines = any(isinstance(each, ast.Define) and each.name == name for each in block.statements)
        return defines or any(head == name or (head in SCHEDULE_WORDS and head != "order") for head in heads)
