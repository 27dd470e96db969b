"""Plans written out: every transfer, every group of tiles, and what each waits for.

Here a plan is read and its names are checked. Whether it moves every byte that is needed, and whether its waits can
end, is checked where plans are lowered.
"""

from typing import Any

from ...codes import Code
from ...ir import EngineChoice, ExecutionOptions, OpCase, OpShape, Override, Step, System, WrittenPlan
from ...outline.outline import WORDS, Outline
from ...outline.write import rejections_on, written_out
from ...planfile.file import import_plan
from ...planning.build import OPTIONS, options_of
from ...planning.knobs import Knob
from ...planning.knobs.engine import reject_groups
from ...text import syntax as ast
from ...text.diagnostics import Report, Span, did_you_mean, listing
from ...text.vocabulary import PLAN_ACTIONS
from ..values.evaluate import Reading
from ..values.words import Words, behind, head_of, head_word, known_head
from .outline import OutlineReader, subject_of
from .plan_steps import RegionReader, StepReader
from .schedule import ChoiceReader

_WORDS = ("plan", "override", "rank")
_Statements = tuple[ast.Define | ast.Say, ...]


class PlanReader:
    """Reads one plan."""

    def __init__(self, system: System, shape: OpShape, choices: ChoiceReader, reading: Reading) -> None:
        self._system, self._workload, self._choices, self._report = system, shape, choices, reading.report
        self._regions = RegionReader(system.num_ranks, reading)
        self._steps = StepReader(system, shape, choices.default_engine(), self._regions, self._report)

    def read(self, plan: ast.PlanNode) -> WrittenPlan:
        """Return the plan; steps are in the order of the text."""
        statements = plan.block.statements
        engine, overlaps, tactics = self._head(statements, plan)
        self._report.require(reject_groups(engine, tactics.protocol, self._workload), statements[0].span)
        self._steps = StepReader(self._system, self._workload, engine, self._regions, self._report)
        ranks = [each for each in statements if isinstance(each, ast.Say) and head_word(each) == "rank"]
        if ranks:
            by_rank = self._by_rank(statements, ranks)
            self._steps.clauses.check_waits()
            return WrittenPlan(engine, by_rank[0], (), tactics, by_rank, overlaps)
        steps = self._steps_of(statements)
        overrides = self._overrides(statements, steps)
        self._steps.clauses.check_waits()
        return WrittenPlan(engine, steps, overrides, tactics, overlaps=overlaps)

    def _steps_of(self, statements: _Statements) -> tuple[Step, ...]:
        steps: list[Step] = []
        for statement in statements:
            with self._report.attempt():
                if isinstance(statement, ast.Define):
                    steps.append(self._steps.read(statement))
        return tuple(steps)

    def _overrides(self, statements: _Statements, steps: tuple[Step, ...]) -> tuple[Override, ...]:
        overrides: list[Override] = []
        by_name = {step.name: step for step in steps}
        said: set[tuple[int, str]] = set()
        for statement in statements:
            with self._report.attempt():
                if isinstance(statement, ast.Say) and self._word(statement) == "override":
                    overrides += self._override(statement, by_name, said)
        return tuple(overrides)

    def _by_rank(self, statements: _Statements, ranks: list[ast.Say]) -> tuple[tuple[Step, ...], ...]:
        """Read ``rank 0 { t1 = put ... }`` for each rank; steps of all ranks do not stand beside them."""
        for other in statements[1:]:
            if isinstance(other, ast.Define) or self._word(other) == "override":
                message = "a plan says steps of all ranks, or a block for each rank"
                self._report.error(Code.MGS116, message, other.span, "rank 0 { t1 = put ... }")
        found: dict[int, tuple[Step, ...]] = {}
        with self._report.whole():
            for statement in ranks:
                with self._report.attempt():
                    rank, block = self._rank_block(statement, "rank", "rank 3 { t1 = put ... }")
                    if rank in found:
                        raise self._report.fail(Code.MGS206, f"rank {rank} is said twice", statement.span)
                    self._steps.clauses.begin_rank()
                    self._steps.at(rank)
                    found[rank] = self._only_steps(block)
        missing = [rank for rank in range(self._system.num_ranks) if rank not in found]
        if missing:
            message = f"the steps of rank {', '.join(map(str, missing[:8]))} are missing"
            raise self._report.fail(Code.MGS209, message, ranks[-1].span, f"rank {missing[0]} {{ }} if there are none")
        return tuple(found[rank] for rank in range(self._system.num_ranks))

    def _only_steps(self, block: ast.BlockNode) -> tuple[Step, ...]:
        for each in block.statements:
            if not isinstance(each, ast.Define):
                self._report.error(Code.MGS116, "rank holds steps", each.span, "t1 = put ...")
        return self._steps_of(block.statements)

    def _word(self, statement: ast.Say) -> str:
        head = head_of(statement)
        if head is not None and head.text in PLAN_ACTIONS:
            hint = f"t1 = {statement.span.text[:40]}"
            raise self._report.fail(Code.MGS116, "a step has a name", statement.span, hint)
        return known_head(statement, _WORDS, "a plan", self._report)

    def _head(self, statements: _Statements, plan: ast.PlanNode) -> tuple[EngineChoice, bool, ExecutionOptions]:
        """Read ``plan by sm(8) alone``, which stands first: engines, whether kernels run beside them, and tactics."""
        if not statements:
            hint = "split rows into 4, for instance, or plan by dma(7) and its steps"
            raise self._report.fail(Code.MGS116, "the block of a schedule says how, or each step", plan.span, hint)
        first = statements[0]
        if not isinstance(first, ast.Say) or self._word(first) != "plan":
            raise self._report.fail(Code.MGS116, "a plan begins with its engines", first.span, "plan by dma(7)")
        for other in statements[1:]:
            if isinstance(other, ast.Say) and head_of(other) == first.phrase[0].parts[0]:
                self._report.error(Code.MGS206, "plan is said twice", other.span)
        words = behind(first, self._report)
        if not words.take_word("by"):
            words.end(("by",))
            return self._choices.default_engine(), True, ExecutionOptions()
        engine = self._choices.engine(words.take("an engine"))
        return engine, words.take_word("alone") is None, self._tactics(words, first)

    def _tactics(self, words: Words, statement: ast.Say) -> ExecutionOptions:
        """Read ``transfer get protocol ll``, in any order."""
        given: dict[Knob, Any] = {}
        while word := words.take_word(*OPTIONS):
            if OPTIONS[word] in given:
                raise self._report.fail(Code.MGS206, f"{word} is said twice", statement.span)
            given[OPTIONS[word]] = self._choices.value(OPTIONS[word], words.take(f"{word} of a plan"))
        words.end(("alone", *OPTIONS))
        return options_of(given)

    def _override(self, statement: ast.Say, steps: dict[str, Step], said: set[tuple[int, str]]) -> list[Override]:
        """Read ``override rank 3 { t1 = put ... }``; ``said`` are the ranks and steps that were overridden before."""
        rank, block = self._rank_block(statement, "override", "override rank 3 { t1 = put ... }")
        found: list[Override] = []
        for inner in block.statements:
            with self._report.attempt():
                if not isinstance(inner, ast.Define):
                    raise self._report.fail(Code.MGS116, "override holds steps", inner.span, "t1 = put ...")
                if inner.name not in steps:
                    hint = did_you_mean(inner.name, steps) or f"steps are {listing(steps)}"
                    raise self._report.fail(Code.MGS506, f"the plan has no step '{inner.name[:64]}'", inner.span, hint)
                if (rank, inner.name) in said:
                    raise self._report.fail(Code.MGS206, f"'{inner.name}' is overridden twice", inner.span)
                said.add((rank, inner.name))
                found.append(Override(rank, self._steps.read(inner, override=True)))
        return found

    def _rank_block(self, statement: ast.Say, word: str, example: str) -> tuple[int, ast.BlockNode]:
        """The absolute rank and the block of ``override rank 3 { }`` or ``rank 3 { }``."""
        words = behind(statement, self._report)
        if statement.block is None or (word == "override" and not words.take_word("rank")):
            raise self._report.fail(Code.MGS116, f"{word} says a rank and its steps", statement.span, example)
        where = words.only("a rank")
        rank = self._regions.reading.count("a rank", 0, 1 << 20, where)
        if rank >= self._system.num_ranks:
            message = f"rank {rank} does not exist, ranks are 0 to {self._system.num_ranks - 1}"
            raise self._report.fail(Code.MGS504, message, where.span)
        return rank, statement.block


_EITHER = "say each step behind 'plan by ...', or how: split, move, group, order"


class WrittenReader:
    """Reads one schedule; ``as_written`` means that no parameter of the file is set from outside."""

    def __init__(self, choices: ChoiceReader, reading: Reading, *, as_written: bool) -> None:
        self._choices, self._reading, self._report = choices, reading, reading.report
        self._as_written = as_written

    def read(
        self, scenario: OpCase, declaration: ast.TemplateNode | ast.PlanNode, path: ast.Text | None = None
    ) -> WrittenPlan | None:
        """Return the plan, which lies in the file at ``path`` if that is given; None if an outline does not fit."""
        if path is not None:
            return import_plan(scenario, path, self._report)
        assert isinstance(declaration, ast.PlanNode), "a template is a choice or an import"
        if is_outline(declaration, self._report):
            outline = OutlineReader(scenario.system, self._choices, self._reading).read(declaration)
            return written_out(scenario, outline) if self._fits(scenario, outline, declaration) else None
        return PlanReader(scenario.system, scenario.shape, self._choices, self._reading).read(declaration)

    def _fits(self, scenario: OpCase, outline: Outline, declaration: ast.PlanNode) -> bool:
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


def is_outline(plan: ast.PlanNode, report: Report) -> bool:
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


def place_of(plan: ast.PlanNode, word: str) -> Span:
    """The statement that begins with ``word``; the head of the schedule where there is none."""
    for statement in plan.block.statements:
        if isinstance(statement, ast.Say) and subject_of(statement) == word:
            return statement.span
    return plan.workload.span
