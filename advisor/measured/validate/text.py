"""The result of ``magus validate`` as text for a terminal of 80 columns and as the page docs/accuracy.md."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from ..tables.csv_rows import EVERY, TableComparison
from ..tables.implementations import ImplementationComparison
from ..tables.promises import PromiseComparison
from ..tables.steps import StepComparison
from . import implementation_report, promise_report, step_report
from .report import ErrorStats, Validation, references_of, weak_spots
from .targets import BASELINES, NOTES, early_switches

COLUMNS = 80
MAX_LEFT_OUT_LINES = 32
HEADER = ("rows", "MAPE", "median", "p90", "bias", "target", "noise")
WIDTHS = (7, 6, 7, 6, 6, 7, 6)
FUSED_WIDTHS = (9, 10, 7, 7, 9)
NAME_WIDTH = COLUMNS - sum(WIDTHS) - 2
PAGE_HEAD = """# How far the models are from measurements

Written by `magus validate --data DIR --write docs/accuracy.md`; do not edit. All figures are in percent; a bold MAPE
misses its target.
"""


def validation_text(validation: Validation) -> str:
    """Return the report for a terminal."""
    return "\n".join(_text_lines(validation))


def validation_page(validation: Validation) -> str:
    """Return the report in Markdown."""
    return "\n".join(line.rstrip() for line in _page_lines(validation)) + "\n"


def _text_lines(validation: Validation) -> Iterator[str]:
    if lines := list(promise_report.board(validation.promises, validation.implementations, validation.times)):
        yield from _board_lines(lines)
    if validation.promises:
        yield from _promise_lines(validation.promises)
    for gpu in validation.gpus:
        of_gpu = [figures for figures in validation.figures if figures.gpu == gpu]
        yield _row(f"{gpu}, percent", HEADER)
        for figures in of_gpu:
            first = figures.group == EVERY
            name = figures.operation if first else f"  {figures.group}"
            yield _row(name, _cells(figures), "!" if figures.missed else "")
        yield ""
        yield "Worst rows, measured and predicted (us; of ratios and shares their value):"
        for figures in of_gpu:
            if figures.group == EVERY:
                yield f"  {_cut(figures.operation, COLUMNS - 2)}"
                yield from (f"    {line}" for line in _worst_lines(figures.worst))
        yield ""
    yield from _bullets("Simulated against the closed form:", _agreement_lines(validation))
    if validation.implementations:
        yield from _implementation_lines(validation.implementations)
    if validation.steps:
        yield from _step_lines(validation.steps)
    yield from _bullets("Others, for scale (MAPE):", _baseline_lines(validation))
    switches = list(early_switches(validation.gpus))
    yield from _bullets("The library switches protocols too early, a choice of its build:", switches)
    yield from _bullets("Weak spots:", list(weak_spots(validation)) or ["none: every target is met"])
    yield from _bullets("Not compared:", _left_out_lines(validation.left_out))
    yield from _bullets("How to read it:", NOTES, last=True)


def _row(name: str, cells: Sequence[str], mark: str = "") -> str:
    numbers = "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    return f"{mark:<2}{_cut(name, NAME_WIDTH):<{NAME_WIDTH}}{numbers}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return ``text``, truncated to ``width``."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


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


def _worst_lines(rows: Sequence[TableComparison]) -> Iterator[str]:
    for row in rows:
        times = f"{row.measured_us:>11.5g}{row.predicted_us:>11.5g}  x{row.predicted_us / row.measured_us:.2f}"
        yield _cut(row.label, 38).ljust(38) + times


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


def _board_lines(lines: Sequence[promise_report.Line]) -> Iterator[str]:
    yield _row(f"{promise_report.BOARD_TITLE}, percent", promise_report.BOARD_HEADER)
    for name, group in groupby(lines, key=lambda line: line[0]):
        yield f"  {name}"
        yield from (_row(f"  {of_group}", cells) for _, of_group, cells in group)
    yield ""
    yield from _bullets("How to read it:", promise_report.BOARD_NOTES)


def _promise_lines(rows: Sequence[PromiseComparison]) -> Iterator[str]:
    yield f"{promise_report.TITLE}, speedups over the library:"
    for thread, group in promise_report.by_thread(rows).items():
        yield _fused_row(thread, promise_report.HEADER)
        for row in group:
            yield _fused_row(f"  {row.row.label}", promise_report.cells_of(row))
    yield ""
    yield from _bullets("Kernels for a plan:", [*promise_report.summary_lines(rows), *promise_report.NOTES])


def _fused_row(name: str, cells: Sequence[str]) -> str:
    numbers = "".join(cell.rjust(width) for cell, width in zip(cells, FUSED_WIDTHS, strict=True))
    width = COLUMNS - sum(FUSED_WIDTHS) - 2
    return f"  {_cut(name, width):<{width}}{numbers}".rstrip()


def _implementation_lines(rows: Sequence[ImplementationComparison]) -> Iterator[str]:
    yield f"{implementation_report.TITLE}, speedups, and errors in percent:"
    for name, group in groupby(rows, key=lambda row: row.row.name):
        yield _fused_row(name, implementation_report.HEADER)
        for row in group:
            yield _fused_row(f"  {row.row.label}", implementation_report.cells_of(row))
    yield ""
    lines = [*implementation_report.summary_lines(rows), *implementation_report.NOTES]
    yield from _bullets("Implementations, held-out half:", lines)


def _step_lines(rows: Sequence[StepComparison]) -> Iterator[str]:
    yield f"{step_report.TITLE}, seconds, and errors in percent:"
    for source, group in step_report.by_source(rows).items():
        yield _fused_row(source, step_report.HEADER)
        for row in group:
            yield _fused_row(f"  {step_report.label_of(row)}", step_report.cells_of(row))
    yield ""
    yield from _bullets("Training steps:", [*step_report.summary_lines(rows), *step_report.NOTES])


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


def _bullets(title: str, lines: Sequence[str], *, last: bool = False) -> Iterator[str]:
    if not lines:
        return
    yield title
    for line in lines:
        yield textwrap.fill(line, COLUMNS, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    if not last:
        yield ""


def _page_lines(validation: Validation) -> Iterator[str]:
    yield from PAGE_HEAD.splitlines()
    yield ""
    if lines := list(promise_report.board(validation.promises, validation.implementations, validation.times)):
        yield from (f"## {promise_report.BOARD_TITLE}", "")
        header = ("kernel", "rows of", *promise_report.BOARD_HEADER)
        yield from _page_table(header, [(name, group, *cells) for name, group, cells in lines])
        yield from (*(f"- {note}" for note in promise_report.BOARD_NOTES), "")
    if validation.promises:
        yield from _promise_section(validation.promises)
    for gpu in validation.gpus:
        of_gpu = [figures for figures in validation.figures if figures.gpu == gpu]
        yield from (f"## {gpu}", "")
        yield from _page_table(("operation", "group", *HEADER), [_page_row(figures) for figures in of_gpu])
        yield from ("Worst rows, in us; of ratios and shares their value:", "")
        yield from _page_table(("operation", "row", "measured", "predicted"), _page_worst(of_gpu))
    yield from _section("The simulator against the closed form", _agreement_lines(validation))
    if validation.implementations:
        yield from _implementation_section(validation.implementations)
    if validation.steps:
        yield from _step_section(validation.steps)
    yield from _section("Others, for scale", _baseline_lines(validation))
    if switches := list(early_switches(validation.gpus)):
        yield from _section("Where the library switches protocols too early, a choice of its build", switches)
    yield from _section("Weak spots", list(weak_spots(validation)) or ["None: every target is met."])
    yield from _section("Not compared", _left_out_lines(validation.left_out))
    yield from _section("How to read it", NOTES)


def _promise_section(rows: Sequence[PromiseComparison]) -> Iterator[str]:
    yield from (f"## {promise_report.TITLE}", "")
    yield from (f"- {line}" for line in (*promise_report.summary_lines(rows), *promise_report.NOTES))
    yield ""
    header = ("thread", "shape of one GPU", *promise_report.HEADER)
    yield from _page_table(header, [(row.row.source, row.row.label, *promise_report.cells_of(row)) for row in rows])


def _implementation_section(rows: Sequence[ImplementationComparison]) -> Iterator[str]:
    yield from (f"## {implementation_report.TITLE}", "")
    header = ("implementation", "GPU and shape of one GPU", *implementation_report.HEADER)
    cells = [(row.row.name, row.row.label, *implementation_report.cells_of(row)) for row in rows]
    yield from _page_table(header, cells)
    lines = (*implementation_report.summary_lines(rows), *implementation_report.NOTES)
    yield from (f"- {line}" for line in lines)
    yield ""


def _step_section(rows: Sequence[StepComparison]) -> Iterator[str]:
    yield from (f"## {step_report.TITLE}", "")
    cells = [(row.row.origin.label, step_report.label_of(row), *step_report.cells_of(row)) for row in rows]
    yield from _page_table(("source", "row and layout", *step_report.HEADER), cells)
    yield from (f"- {line}" for line in (*step_report.summary_lines(rows), *step_report.NOTES))
    yield ""


def _page_row(figures: ErrorStats) -> tuple[str, ...]:
    rows, mape, *rest = _cells(figures)
    return figures.operation, figures.group, rows, f"**{mape}**" if figures.missed else mape, *rest


def _page_worst(of_gpu: Sequence[ErrorStats]) -> list[tuple[str, ...]]:
    return [
        (figures.operation, row.label, f"{row.measured_us:.5g}", f"{row.predicted_us:.5g}")
        for figures in of_gpu
        if figures.group == EVERY
        for row in figures.worst
    ]


def _page_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table; all columns but the first two hold numbers."""
    yield _page_line(header)
    yield "|" + "|".join("---" if column < 2 else "---:" for column in range(len(header))) + "|"
    yield from (_page_line(row) for row in rows)
    yield ""


def _page_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"## {title}", "", *(f"- {line}" for line in lines), "")
