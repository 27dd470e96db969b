"""The result of ``magus validate`` as text for a terminal of 80 columns and as the page docs/accuracy.md.

Both show the same blocks in one order.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..tables.csv_rows import EVERY, grouped
from . import implementation_report, promise_report, step_report
from .report import ErrorStats, Validation, references_of, weak_spots
from .targets import BASELINES, NOTES, early_switches

COLUMNS = 80
MAX_LEFT_OUT_LINES = 32
HEADER = ("rows", "MAPE", "median", "p90", "bias", "target", "noise")
TEXT_HEAD = "All figures are in percent; ! marks a group that misses its target."
PAGE_HEAD = """# How far the models are from measurements

Written by `magus validate --data DIR --write docs/accuracy.md`; do not edit. All figures are in percent; a bold MAPE
misses its target.
"""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A row of a table: its group, its name and its numbers, of which a MAPE that misses its target is the second."""

    group: str
    name: str
    cells: tuple[str, ...]
    missed: bool = False


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """A part of the report: a table, and sentences behind it; one of both may be empty.

    ``title`` is empty if it belongs to the block before, ``words`` say then what the table has. ``columns`` are the
    names of the groups and of the names of rows, ``header`` those of the numbers.
    """

    title: str
    lines: Sequence[str] = ()
    columns: tuple[str, str] = ("", "")
    header: tuple[str, ...] = ()
    rows: Sequence[ReportRow] = ()
    words: str = ""


def validation_text(validation: Validation) -> str:
    """Return the report for a terminal."""
    lines = [line for block in _blocks(validation) for line in _text_lines(block)]
    return "\n".join([TEXT_HEAD, "", *lines]).rstrip("\n")


def validation_page(validation: Validation) -> str:
    """Return the report in Markdown."""
    lines = [line.rstrip() for block in _blocks(validation) for line in _page_lines(block)]
    return "\n".join([PAGE_HEAD, *lines]) + "\n"


def _blocks(validation: Validation) -> Iterator[ReportBlock]:
    board = promise_report.board(validation.promises, validation.implementations, validation.times)
    if rows := [ReportRow(*line) for line in board]:
        columns = ("kernel", "rows of")
        yield ReportBlock(
            promise_report.BOARD_TITLE, promise_report.BOARD_NOTES, columns, promise_report.BOARD_HEADER, rows
        )
    if promises := validation.promises:
        yield ReportBlock(promise_report.TITLE, (*promise_report.summary_lines(promises), *promise_report.NOTES))
        rows = [ReportRow(each.row.source, each.row.label, promise_report.cells_of(each)) for each in promises]
        yield ReportBlock("", (), ("thread", "shape of one GPU"), promise_report.HEADER, rows)
    for gpu, figures in grouped(validation.figures, lambda figures: figures.gpu).items():
        yield from _gpu_blocks(gpu, figures)
    yield from _sentences("The simulator against the closed form", _agreement_lines(validation))
    if shipped := validation.implementations:
        lines = (*implementation_report.summary_lines(shipped), *implementation_report.NOTES)
        rows = [ReportRow(each.row.name, each.row.label, implementation_report.cells_of(each)) for each in shipped]
        columns = ("implementation", "GPU and shape of one GPU")
        yield ReportBlock(implementation_report.TITLE, lines, columns, implementation_report.HEADER, rows)
    if steps := validation.steps:
        lines = (*step_report.summary_lines(steps), *step_report.NOTES)
        rows = [
            ReportRow(each.row.origin.label, step_report.label_of(each), step_report.cells_of(each)) for each in steps
        ]
        yield ReportBlock(step_report.TITLE, lines, ("source", "row and layout"), step_report.HEADER, rows)
    yield from _sentences("Others, for scale", _baseline_lines(validation))
    switches = list(early_switches(validation.gpus))
    yield from _sentences("Where the library switches protocols too early, a choice of its build", switches)
    yield ReportBlock("Weak spots", list(weak_spots(validation)) or ["None: every target is met."])
    yield from _sentences("Not compared", _left_out_lines(validation.left_out))
    yield ReportBlock("How to read it", NOTES)


def _sentences(title: str, lines: Sequence[str]) -> Iterator[ReportBlock]:
    if lines:
        yield ReportBlock(title, lines)


def _gpu_blocks(gpu: str, of_gpu: Sequence[ErrorStats]) -> Iterator[ReportBlock]:
    """Yield the errors of a GPU by operation and group, and the worst rows of each operation."""
    rows = [ReportRow(figures.operation, figures.group, _cells(figures), figures.missed) for figures in of_gpu]
    yield ReportBlock(gpu, (), ("operation", "group"), HEADER, rows)
    worst = [
        ReportRow(figures.operation, row.label, (f"{row.measured_us:.5g}", f"{row.predicted_us:.5g}"))
        for figures in of_gpu
        if figures.group == EVERY
        for row in figures.worst
    ]
    words = "Worst rows, in us; of ratios and shares their value:"
    yield ReportBlock("", (), ("operation", "row"), ("measured", "predicted"), worst, words)


def _cells(figures: ErrorStats) -> tuple[str, ...]:
    return (
        str(figures.rows),
        f"{figures.mape:.1f}",
        f"{figures.median:.1f}",
        f"{figures.p90:.1f}",
        f"{figures.bias:+.1f}",
        "" if figures.target is None else f"{figures.target:g}",
        figures.floor or "",
    )


def _agreement_lines(validation: Validation) -> list[str]:
    lines = []
    for agreement in validation.agreements:
        beyond = (
            f"{agreement.beyond} of them beyond {agreement.limit:.0%}"
            if agreement.beyond
            else f"all within {agreement.limit:.0%}"
        )
        skipped = f"; {agreement.too_large} more are too large to simulate" if agreement.too_large else ""
        lines.append(
            f"{agreement.gpu}: {agreement.counted}, {beyond}: median difference {agreement.median:.2%}, "
            f"largest {agreement.largest:.2%} ({agreement.worst}){skipped}"
        )
    return lines


def _baseline_lines(validation: Validation) -> list[str]:
    """Return a line for each other model: its errors, and those of Magus in the same groups."""
    lines = []
    for reference in BASELINES:
        here = [figures for figures in validation.figures if list(references_of(figures, [reference]))]
        if not here:
            continue
        what = f"{', '.join(reference.operations)}: {reference.what}"
        if "" in reference.percent:
            low, high = min(figures.mape for figures in here), max(figures.mape for figures in here)
            lines.append(f"{what}: {reference.percent['']}; here {low:.1f}-{high:.1f}")
        else:
            by_gpu = [f"{figures.gpu} {reference.on(figures.gpu)}, here {figures.mape:.1f}" for figures in here]
            lines.append(f"{what}: {'; '.join(by_gpu)}")
    return lines


def _left_out_lines(left_out: Sequence[str]) -> list[str]:
    more = len(left_out) - MAX_LEFT_OUT_LINES
    return [*left_out[:MAX_LEFT_OUT_LINES], *([f"and {more:,} more, see --json"] if more > 0 else [])]


def _text_lines(block: ReportBlock) -> Iterator[str]:
    """Yield a block for a terminal: rows below the name of their group, with a mark where a target is missed."""
    if block.rows:
        columns = zip(block.header, *(row.cells for row in block.rows), strict=True)
        widths = [2 + max(map(len, column)) for column in columns]
        yield _text_row(block.title or block.words, block.header, widths)
        for group, rows in grouped(block.rows, lambda row: row.group).items():
            yield f"  {_cut(group, COLUMNS - 2)}"
            yield from (_text_row(f"  {row.name}", row.cells, widths, "!" if row.missed else "") for row in rows)
        yield ""
    elif block.title:
        yield f"{block.title}:"
    for line in block.lines:
        yield textwrap.fill(line, COLUMNS, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    if block.lines:
        yield ""


def _text_row(name: str, cells: Sequence[str], widths: Sequence[int], mark: str = "") -> str:
    numbers = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    width = COLUMNS - sum(widths) - 2
    return f"{mark:<2}{_cut(name, width):<{width}}{numbers}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return ``text``, truncated to ``width``."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _page_lines(block: ReportBlock) -> Iterator[str]:
    """Yield a block in Markdown; of a table all columns but the first two hold numbers."""
    if block.title:
        yield from (f"## {block.title}", "")
    if block.words:
        yield from (block.words, "")
    if block.rows:
        yield _page_line((*block.columns, *block.header))
        yield f"|---|---|{'---:|' * len(block.header)}"
        yield from (_page_line(_page_cells(row)) for row in block.rows)
        yield ""
    if block.lines:
        yield from (*(f"- {line}" for line in block.lines), "")


def _page_cells(row: ReportRow) -> tuple[str, ...]:
    rows, mape, *rest = row.cells
    return row.group, row.name, rows, f"**{mape}**" if row.missed else mape, *rest


def _page_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
