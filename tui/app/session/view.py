"""Texts and rows of the screen: pure functions of the session's data. No Textual."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Literal, TypeVar

from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....compiler.ir import TICKS_PER_US, Fabric, Scenario
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.text.units import ticks_text, us_text
from ....simcore.shown_run import ShownRun
from ...text.ops import shape_text
from ...text.progress import WORDS
from ...text.render import threshold_sentence

# Characters kept of the front of an expression that does not fit; the parameters at its end tell candidates apart.
KEPT_FRONT = 9


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of rows: its heading and width, the ``text`` of a row, and the ``order`` to sort rows by.

    Without a width it takes the rest, and without an order rows are not sorted by it. What does not stand to the right
    are words, which are cut where they do not fit; those to the left fill their cell.
    """

    heading: str
    width: int
    text: Callable[[Any], str]
    order: Callable[[Any], float | str] | None
    justify: Literal["left", "default", "right"] = "right"

    def sort(self, rows: Iterable[R]) -> tuple[R, ...]:
        """Return rows in the order of the answer sorted by this column; those that are alike in it stay as they are."""
        return tuple(rows if self.order is None else sorted(rows, key=self.order))


class SortKey(Enum):
    """Columns of the candidates; unknown times are sorted to the end, and RANK is the order of the advice."""

    RANK = Column(" ", 3, lambda row: row.mark.value, lambda row: row.rank, justify="default")
    SCHEDULE = Column("schedule (times in us)", 0, lambda row: row.name, lambda row: row.name, justify="default")
    PREDICTED = Column("predicted", 10, lambda row: row.predicted_text, lambda row: _or_last(row.predicted_us))
    SIMULATED = Column("simulated", 10, lambda row: row.simulated_text, lambda row: _or_last(row.simulated_us))
    UNIT = Column(" unit", 7, lambda row: f" {row.granularity}", None, justify="default")
    SPEEDUP = Column("speedup", 8, lambda row: row.speedup_text, lambda row: row.best_us)


def _or_last(us: float | None) -> float:
    return inf if us is None else us


class Mark(Enum):
    """Sign in front of a candidate."""

    RECOMMENDED = "★"
    TIE = "≈"
    TOO_LARGE = "x"
    NONE = " "


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One line of the table of candidates: its ``name``, which may be short; ``speedup`` is that of ``best_us``."""

    rank: int
    mark: Mark
    name: str
    expression: str
    predicted_us: float | None
    simulated_us: float | None
    granularity: str
    best_us: float
    speedup: float
    is_estimate: bool

    @property
    def predicted_text(self) -> str:
        """The predicted time; ``-`` that there is none."""
        return "-" if self.predicted_us is None else f"{self.predicted_us:.1f}"

    @property
    def simulated_text(self) -> str:
        """The simulated time; ``~`` marks one that stands for layers that were not, and ``-`` that there is none."""
        return "-" if self.simulated_us is None else f"{'~' if self.is_estimate else ''}{self.simulated_us:.1f}"

    @property
    def speedup_text(self) -> str:
        """Speedup over the baseline; ``~`` marks an estimate, and ``-`` that nothing is known yet."""
        return "-" if self.speedup == 0 else f"{'~' if self.is_estimate else ''}{self.speedup:.2f}x"


def us(ticks: int) -> str:
    """Time in us with one decimal."""
    return f"{ticks / TICKS_PER_US:.1f}"


def title_of(scenario: Scenario, job_idx: int, num_jobs: int) -> str:
    """Scenario, workload, pattern, GPUs, fabric and shape in one line; of several ops their number and layers."""
    case, workload, system = scenario.only_case, scenario.workload, scenario.system
    where = (system.title, fabric_text(system.fabric))
    place = f" ({job_idx + 1} of {num_jobs})" if num_jobs > 1 else ""
    if case is None:
        ops = f"{len(workload.ops)} op{'s' if len(workload.ops) > 1 else ''}"
        layers = () if workload.repeat is None else (f"{workload.repeat.count} layers",)
        return " · ".join((workload.name + place, ops, *layers, *where))
    shape = case.shape
    parts = [] if scenario.name == shape.name else [scenario.name]
    parts += [shape.name + place, shape.label, *where]
    if shape.gemm is not None and shape.then is None:
        parts.append(f"{shape.gemm.dtype.value} {shape.gemm.m}x{shape.gemm.n}x{shape.gemm.k}/rank")
    elif shape.then is not None or (shape.moved is not None and shape.kernel is not None):
        parts.append(shape_text(shape))
    return " · ".join(parts)


def fabric_text(fabric: Fabric) -> str:
    """The fabric as the language writes it."""
    names = [link.name for link in fabric.links] + ([fabric.switch.name] if fabric.switch is not None else [])
    return f"{fabric.topology.name}({', '.join(names)})"


def verdict_of(advice: Advice, width: int) -> str:
    """Return the verdict with the schedule to use, on two lines if one is too short."""
    name = advice.recommended_text
    same = advice.recommended.expression == advice.serial.expression
    sentence = f"SERIAL: {advice.why_serial}; use"
    if advice.scenario.is_algorithm_choice:
        faster = f"{advice.speedup:.2f}x faster than {advice.baseline_text}:"
        sentence = f"{advice.verdict.name}: {'no other schedule is clearly faster:' if same else faster}"
    elif advice.verdict is Verdict.OVERLAP:
        sentence = f"OVERLAP pays: {advice.gain:.2f}x over {advice.baseline_text} with"
    elif advice.verdict is Verdict.WORTH_TRYING:
        simulated = f"{advice.speedup:.2f}x over {advice.baseline_text} simulated"
        sentence = f"WORTH TRYING: {simulated}, {advice.gain:.2f}x as a kernel, with"
    elif not same:
        sentence = f"SERIAL: {advice.why_serial}; {advice.gain:.2f}x over {advice.baseline_text} with"
    return sentence + (" " if len(sentence) + len(name) < width else "\n") + name


def figures_of(advice: Advice) -> str:
    """Return the times behind the verdict."""
    best, serial = advice.recommended, advice.serial
    same = best.expression == serial.expression
    against = "" if same else f" against {us_text(serial.best_us)} {advice.against}"
    how = "" if best.simulated_us is not None else " (predicted)"
    return f"{us_text(best.best_us)}{how}{against} · {bound_of(advice)}"


def bound_of(advice: Advice) -> str:
    """The lower bound and how far the answer is above it."""
    bound, gap = advice.bound, advice.gap_to_bound
    if bound is None or gap is None:
        return "no lower bound"
    return f"lower bound {ticks_text(bound.ticks)} ({bound.binding}), gap {gap:.1%}"


class Finality(Enum):
    """How final an answer is: the word in front of the verdict, and a sentence."""

    FINAL = ("", "")
    STOPPED = ("stopped, ", "Stopped: the best of what was found. ")
    PREDICTED = ("predicted, ", "Not confirmed: predicted, being simulated. ")
    SIMULATED = ("not final, ", "Simulated, not final: the search goes on. ")

    @property
    def word(self) -> str:
        """The word in front of the verdict."""
        return self.value[0]

    @property
    def sentence(self) -> str:
        """What it means."""
        return self.value[1]


def standing_of(advice: Advice, *, advising: bool) -> Finality:
    """Return how final an answer is."""
    if not advice.interrupted:
        return Finality.FINAL
    if not advising:
        return Finality.STOPPED
    simulated = advice.recommended.simulated_us is not None and advice.serial.simulated_us is not None
    return Finality.SIMULATED if simulated else Finality.PREDICTED


@dataclass(frozen=True, slots=True)
class JobHead:
    """What stands above the panes; ``pays`` is whether the verdict stands out, ``sure`` the name of the confidence."""

    verdict: str
    pays: bool
    figures: str
    threshold: str
    confidence: str
    sure: str
    marks: tuple[str, ...]


def head_of(advice: Advice, width: int, *, advising: bool) -> JobHead:
    """Return the head in ``width`` columns; while the app is ``advising`` it says that it is not final."""
    standing = standing_of(advice, advising=advising)
    return JobHead(
        standing.word + verdict_of(advice, width - len(standing.word)),
        advice.verdict is Verdict.OVERLAP,
        figures_of(advice),
        "" if advice.threshold is None else threshold_sentence(advice.threshold),
        standing.sentence + confidence_of(advice),
        advice.confidence.value,
        advice.marks,
    )


def confidence_of(advice: Advice) -> str:
    """Confidence and its reason."""
    return f"Confidence {advice.confidence.value}: {advice.confidence_reason}"


def rows_of(advice: Advice, runs: Mapping[str, ShownRun], key: SortKey) -> tuple[CandidateRow, ...]:
    """Return all candidates sorted by ``key``; runs simulated on demand fill gaps of the advice."""
    names = advice.short_names
    rows = (
        _row(rank, names.get(one.expression, one.expression), one, advice, runs.get(one.expression))
        for rank, one in enumerate(advice.candidates, 1)
    )
    return key.value.sort(rows)


def row_of(advice: Advice, runs: Mapping[str, ShownRun], expression: str | None) -> CandidateRow | None:
    """Return the row of one candidate."""
    return next((row for row in rows_of(advice, runs, SortKey.RANK) if row.expression == expression), None)


def _row(rank: int, name: str, candidate: Candidate, advice: Advice, run: ShownRun | None) -> CandidateRow:
    simulated, best, grain = candidate.simulated_us, candidate.best_us, ""
    is_estimate = candidate.is_estimate
    if simulated is not None:
        grain = "line" if candidate.unit_bytes == advice.scenario.system.gpu.line_bytes else "packet"
    elif run is not None:
        simulated = best = run.makespan_ticks / TICKS_PER_US
        grain, is_estimate = run.result.granularity, run.result.is_estimate
    mark = Mark.TIE if candidate.expression in advice.ties else Mark.NONE
    if candidate.expression == advice.recommended.expression:
        mark = Mark.RECOMMENDED
    return CandidateRow(
        rank=rank,
        mark=mark,
        name=name,
        expression=candidate.expression,
        predicted_us=candidate.predicted_us,
        simulated_us=simulated,
        granularity=grain,
        best_us=best,
        speedup=advice.serial.best_us / best,
        is_estimate=is_estimate,
    )


def shortened(expression: str, width: int) -> str:
    """Return ``expression`` in ``width`` columns; the middle of the name is cut, not the parameters."""
    if len(expression) <= width:
        return expression
    if width <= KEPT_FRONT + 1:
        return expression[: max(0, width - 1)] + "…"
    return f"{expression[:KEPT_FRONT]}…{expression[len(expression) - (width - KEPT_FRONT - 1) :]}"


def selected_text(row: CandidateRow) -> str:
    """Return the full expression of a candidate, and its times."""
    time = f"{us_text(row.predicted_us)} predicted" if row.predicted_us is not None else "not simulated yet"
    if row.simulated_us is not None:
        time = f"{'~' if row.is_estimate else ''}{us_text(row.simulated_us)} {row.granularity}"
    return f"{row.expression}  {time} {row.speedup_text}"


def progress_text(stage: str, done: int, total: int, width: int = 20) -> str:
    """Return a stage of the advice in words, with a bar if it counts."""
    text = WORDS.get(stage, stage).format(done=done, total=total)
    if total <= 1 or not 0 <= done <= total or stage == "rank":
        return f"{text} ..."
    filled = round(width * done / total)
    return f"{'█' * filled}{'░' * (width - filled)} {text}"


def fitted_code(code: str, carets: str, width: int) -> tuple[str, str]:
    """Return a source line and the carets under it, both cut to ``width`` columns around the carets."""
    place = len(carets) - len(carets.lstrip())
    if len(code) <= width:
        return code, carets[:width]
    start = max(0, min(place - width // 3, len(code) - width))
    shown, below = code[start : start + width], carets[start : start + width]
    if start:
        shown = "…" + shown[1:]
    if start + width < len(code):
        shown = shown[:-1] + "…"
    return shown, below
