"""Texts and rows of the screen about a training step. No Textual."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ....advisor.steps.answer import StepAdvice
from ....advisor.steps.outcome import StepOutcome, memory_limit
from ....advisor.steps.search import TIE
from ....compiler.ir.step import StepScenario
from ....compiler.text.units import bytes_text, seconds_text
from ...text.step import counted_text, declared_as, key_of, question_of
from .view import Column, Finality, JobHead, Mark


class StepSort(Enum):
    """Columns of the layouts; RANK is the order of the answer."""

    RANK = Column(" ", 2, lambda row: row.mark.value, lambda row: row.rank, justify="default")
    LAYOUT = Column("layout", 18, lambda row: row.outcome.layout, lambda row: row.outcome.layout, justify="left")
    SCHEDULE = Column("schedule", 0, lambda row: row.name, lambda row: row.name, justify="left")
    TIME = Column("step", 10, lambda row: row.time_text, lambda row: row.outcome.run.makespan_ticks)
    TOKENS = Column(
        "tok/s/GPU", 10, lambda row: f"{row.outcome.tokens_per_gpu_s:,.0f}", lambda row: -row.outcome.tokens_per_gpu_s
    )
    MEMORY = Column(
        "memory", 9, lambda row: f"{row.outcome.memory_bytes / 2**30:.1f} GiB", lambda row: row.outcome.memory_bytes
    )
    EXPOSED = Column("exposed", 8, lambda row: f"{row.outcome.run.exposed:.1%}", lambda row: row.outcome.run.exposed)
    BUBBLE = Column("bubble", 7, lambda row: f"{row.outcome.run.bubble:.1%}", lambda row: row.outcome.run.bubble)


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """One line of the table of layouts: ``expression`` names it for good, ``name`` is its schedule in short.

    ``is_estimate`` is whether no traffic was simulated beside its layers.
    """

    rank: int
    mark: Mark
    expression: str
    name: str
    outcome: StepOutcome
    is_estimate: bool

    @property
    def full_name(self) -> str:
        """Its name, and what it is if it has one."""
        words = self.outcome.words
        return words if self.name == words else f"{self.name}: {words}"

    @property
    def time_text(self) -> str:
        """The time of a step; ``~`` marks an estimate."""
        return f"{'~' if self.is_estimate else ''}{seconds_text(self.outcome.run.makespan_ticks)}"


def rows_of(advice: StepAdvice, key: StepSort = StepSort.RANK) -> tuple[LayoutRow, ...]:
    """Return all layouts that were compared and the schedules of the file, each once, sorted by ``key``."""
    searched, chosen = advice.searched, advice.recommended
    best = None if chosen is None else chosen.run.makespan_ticks
    known: list[tuple[StepOutcome, bool]] = [(each, True) for each in searched.declared]
    known += [
        (each, place < searched.contended)
        for place, each in enumerate(searched.outcomes)
        if each is chosen or declared_as(each, searched) is None
    ]
    if chosen is not None:
        same = declared_as(chosen, searched)
        known = [pair for pair in known if pair[0] is not same]
    known.sort(key=lambda pair: (pair[0] is not chosen, pair[0].run.makespan_ticks))
    rows = []
    for rank, (each, is_contended) in enumerate(known, 1):
        tied = best is not None and abs(each.run.makespan_ticks / best - 1) <= TIE
        mark = Mark.RECOMMENDED if each is chosen else Mark.TOO_LARGE if not each.fits else Mark.TIE if tied else None
        same = each if any(each is one for one in searched.declared) else declared_as(each, searched)
        name = each.words if same is None else same.schedule.name
        rows.append(LayoutRow(rank, mark or Mark.NONE, key_of(same or each), name, each, not is_contended))
    return key.value.sort(rows)


def picked_row(advice: StepAdvice, expression: str | None) -> LayoutRow | None:
    """Return the row of that name; without one, or if it is gone, the first."""
    rows = rows_of(advice)
    return next((row for row in rows if row.expression == expression), rows[0] if rows else None)


def title_of_step(scenario: StepScenario, job_idx: int, num_jobs: int) -> str:
    """The question, and which of the questions of its file it is."""
    return question_of(scenario) + (f" ({job_idx + 1} of {num_jobs})" if num_jobs > 1 else "")


def standing_of(advice: StepAdvice, *, advising: bool) -> Finality:
    """Return how final an answer is."""
    if not advice.interrupted:
        return Finality.FINAL
    return Finality.SIMULATED if advising else Finality.STOPPED


def head_of(advice: StepAdvice, *, advising: bool) -> JobHead:
    """Return the head; while the app is ``advising`` it says that it is not final."""
    standing, pays = standing_of(advice, advising=advising), advice.recommended is not None
    verdict = standing.word + verdict_of(advice)
    return JobHead(verdict, pays, figures_of(advice), "", standing.sentence, "medium", advice.marks)


def verdict_of(advice: StepAdvice) -> str:
    """Which layout to use, or that none can be."""
    chosen = advice.recommended
    if chosen is None and advice.interrupted:
        return "no layout is simulated yet"
    if chosen is None:
        return "NO LAYOUT can be used: see Why"
    row = picked_row(advice, None)
    name = chosen.words if row is None else row.full_name
    speed = f"{seconds_text(chosen.run.makespan_ticks)} a step, {chosen.tokens_per_gpu_s:,.0f} tokens/s/GPU"
    return f"USE {chosen.layout}, {name}: {speed}"


def figures_of(advice: StepAdvice) -> str:
    """What stands behind the verdict."""
    chosen, counted = advice.recommended, counted_text(advice.searched)
    if chosen is None:
        return counted
    run, limit = chosen.run, bytes_text(memory_limit(chosen.scenario))
    shares = f"bubble {run.bubble:.1%}, exposed {run.exposed:.1%}"
    return f"{bytes_text(chosen.memory_bytes)} of {limit} · {shares} · {counted}"


def selected_text(row: LayoutRow) -> str:
    """The layout under the cursor in full."""
    settings = ", ".join(f"{name} = {value}" for name, value in row.outcome.settings)
    where = f"  ({settings})" if settings else ""
    return f"{row.outcome.layout}, {row.full_name}  {row.time_text}{where}"


BAR_COLUMNS = 24


def memory_lines(outcome: StepOutcome, width: int) -> Iterator[str]:
    """The memory of a GPU of each stage: a bar against what there is, and what it consists of."""
    limit = memory_limit(outcome.scenario)
    parts = ("weights", "gradients", "optimizer", "activations", "transient")
    columns = "".join(f"{name:>11}" for name in parts) if width >= BAR_COLUMNS + 75 else ""
    yield f"stage{columns}  all of {bytes_text(limit)}"
    for number, each in enumerate(outcome.memory, 1):
        sizes = "".join(f"{getattr(each, name) / 2**30:>11.2f}" for name in parts) if columns else ""
        filled = min(BAR_COLUMNS, round(BAR_COLUMNS * each.total / limit))
        over = " does not fit" if each.total > limit else ""
        bar = "█" * filled + "░" * (BAR_COLUMNS - filled)
        yield f"{number:>5}{sizes}  {bar} {each.total / 2**30:.1f} GiB{over}"
