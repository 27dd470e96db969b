"""Schedules that are no template: plans written out, outlines, plans in files."""

from ...ir import Plan, Scenario
from ...outline.outline import Outline
from ...outline.write import rejections_on, written_out
from ...planfile.file import import_plan
from ...text import syntax as ast
from ...text.diagnostics import Report
from ..values.evaluate import ExpressionEvaluator, Place
from .outline import OutlineReader
from .outline_block import is_outline, place_of
from .plan import PlanReader
from .template import ChoiceReader


class WrittenReader:
    """Reads one schedule; ``as_written`` means that no parameter of the file is set from outside."""

    def __init__(
        self,
        choices: ChoiceReader,
        place: Place,
        evaluator: ExpressionEvaluator,
        report: Report,
        *,
        as_written: bool,
    ) -> None:
        self._choices, self._place, self._evaluator, self._report = choices, place, evaluator, report
        self._as_written = as_written

    def read(
        self, scenario: Scenario, declaration: ast.Template | ast.Plan, path: ast.Text | None = None
    ) -> Plan | None:
        """Return the plan, which lies in the file at ``path`` if that is given; None if an outline does not fit."""
        if path is not None:
            return import_plan(scenario, path, self._report)
        assert isinstance(declaration, ast.Plan), "a template is a choice or an import"
        with_choices = (self._choices, self._place, self._evaluator, self._report)
        if is_outline(declaration, self._report):
            outline = OutlineReader(scenario.system, *with_choices).read(declaration)
            return written_out(scenario, outline) if self._fits(scenario, outline, declaration) else None
        return PlanReader(scenario.system, scenario.workload, *with_choices).read(declaration)

    def _fits(self, scenario: Scenario, outline: Outline, declaration: ast.Plan) -> bool:
        """Return whether an outline is a plan here; report why not, as warnings if parameters are set from outside."""
        rejections = tuple(rejections_on(scenario, outline))
        for rejection in rejections:
            span = place_of(declaration, rejection.statement)
            if self._as_written:
                self._report.error(rejection.code, rejection.message, span, rejection.hint)
            else:
                message = f"{declaration.name} is left out: {rejection.message}"
                self._report.warn(rejection.code, message, span, rejection.hint)
        return not rejections
