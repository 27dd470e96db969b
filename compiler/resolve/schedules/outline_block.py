"""The block of a schedule that is no template: whether it says how or each step, and where it says what."""

from ...codes import Code
from ...outline.outline import WORDS
from ...text import syntax as ast
from ...text.diagnostics import Report
from ...text.source import Span
from ...text.vocabulary import PLAN_ACTIONS
from ..values.sentences import head_of

_EITHER = "say each step behind 'plan by ...', or how: split, move, group, order"


def is_outline(plan: ast.Plan, report: Report) -> bool:
    """Whether a block says how, and not each step; a plan written out begins with ``plan``."""
    statements = plan.block.statements
    written_out = any(_head(each) == "plan" for each in statements)
    says_how = [each for each in statements if _says_how(each, written_out)]
    steps = [each for each in statements if _says_a_step(each) and each not in says_how]
    if written_out and says_how:
        what = says_how[0].span
        raise report.fail(Code.MGS116, f"'{_shown(what)}' says how, and this plan says each step", what, _EITHER)
    if steps and says_how:
        what = steps[0].span
        raise report.fail(Code.MGS116, f"'{_shown(what)}' is a step, and this schedule says how", what, _EITHER)
    return bool(statements) and not written_out and not steps


def _head(statement: ast.Define | ast.Say) -> str:
    head = head_of(statement) if isinstance(statement, ast.Say) else None
    return head.text if head is not None else ""


def subject_of(statement: ast.Say) -> str:
    """The word that a statement begins with; the own shard is split apart from the others."""
    head, parts = _head(statement), statement.phrase[0].parts
    own = head == "split" and len(parts) > 1 and isinstance(parts[1], ast.Name) and parts[1].text == "own"
    return "split own" if own else head


def _says_how(statement: ast.Define | ast.Say, written_out: bool) -> bool:
    # A step of a plan may have such a name; elsewhere a '=' is one too many.
    named = isinstance(statement, ast.Define) and not written_out and statement.name in WORDS
    return named or _head(statement) in WORDS


def _says_a_step(statement: ast.Define | ast.Say) -> bool:
    return isinstance(statement, ast.Define) or _head(statement) in ("override", *PLAN_ACTIONS)


def _shown(span: Span) -> str:
    return span.text.split("\n")[0][:40]


def place_of(plan: ast.Plan, word: str) -> Span:
    """The statement that begins with ``word``; the head of the schedule where there is none."""
    for statement in plan.block.statements:
        if isinstance(statement, ast.Say) and subject_of(statement) == word:
            return statement.span
    return plan.workload.span
