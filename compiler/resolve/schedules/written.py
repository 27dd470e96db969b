"""Schedules of one op that are no template: plans written out, outlines, plans in files."""

from ...codes import Code
from ...ir import Plan, Scenario
from ...outline.outline import WORDS, Outline
from ...outline.write import rejections_on, written_out
from ...planfile.file import import_plan
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.source import Span
from ...text.vocabulary import PLAN_ACTIONS
from ..values.evaluate import ExpressionEvaluator, Place
from ..values.sentences import head_word
from .outline import OutlineReader, subject_of
from .plan import PlanReader
from .template import ChoiceReader

_EITHER = "say each step behind 'plan by ...', or how: split, move, group, order"


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


def is_outline(plan: ast.Plan, report: Report) -> bool:
    """Whether a block says how, and not each step; a plan written out begins with ``plan``."""
    statements = plan.block.statements
    written_out = any(head_word(each) == "plan" for each in statements)
    says_how = [each for each in statements if _says_how(each, written_out)]
    steps = [each for each in statements if _says_a_step(each) and each not in says_how]
    if written_out and says_how:
        what = says_how[0].span
        raise report.fail(Code.MGS116, f"'{_shown(what)}' says how, and this plan says each step", what, _EITHER)
    if steps and says_how:
        what = steps[0].span
        raise report.fail(Code.MGS116, f"'{_shown(what)}' is a step, and this schedule says how", what, _EITHER)
    return bool(statements) and not written_out and not steps


def _says_how(statement: ast.Define | ast.Say, written_out: bool) -> bool:
    # A step of a plan may have such a name; elsewhere a '=' is one too many.
    named = isinstance(statement, ast.Define) and not written_out and statement.name in WORDS
    return named or head_word(statement) in WORDS


def _says_a_step(statement: ast.Define | ast.Say) -> bool:
    return isinstance(statement, ast.Define) or head_word(statement) in ("override", *PLAN_ACTIONS)


def _shown(span: Span) -> str:
    return span.text.split("\n")[0][:40]


def place_of(plan: ast.Plan, word: str) -> Span:
    """The statement that begins with ``word``; the head of the schedule where there is none."""
    for statement in plan.block.statements:
        if isinstance(statement, ast.Say) and subject_of(statement) == word:
            return statement.span
    return plan.workload.span
