"""Rows of a table whose last column is long: aligned where they fit, else on lines of their own."""

from collections.abc import Container, Iterator, Sequence

from ...compiler.text.printable import printable
from .wrap import columns, hanging

VERDICTS = {
    "overlap": "OVERLAP",
    "worth_trying": "worth trying",
    "serial": "serial",
    "library": "library",
    "use": "USE",
}


def table_lines(rows: Sequence[tuple[Sequence[str], str]], words: Container[int]) -> Iterator[str]:
    """Yield a line for each row of cells with what stands behind them; cells ``words`` are words.

    Words stand to the left and numbers to the right. Where the cells of a row do not fit the terminal, they follow
    their first one on lines of their own, as what stands behind them does.
    """
    widths = [max(len(cells[idx]) for cells, _ in rows) for idx in range(len(rows[0][0]))]
    fits = sum(widths) + 2 * (len(widths) - 1) <= columns()
    for cells, behind in rows:
        padded = [
            cell.ljust(width) if idx in words else cell.rjust(width)
            for idx, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        line = "  ".join(padded)
        if fits and len(line) + 2 + len(behind) <= columns():
            yield f"{line}  {behind}".rstrip()
            continue
        if fits:
            yield line.rstrip()
        else:
            yield from hanging(cells[0], 2)
            yield from hanging("    " + "  ".join(filter(None, cells[1:])), 4)
        yield from hanging(f"    {behind}", 6) if behind else ()


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, the first two to the left, numbers to the right.

    A name that leaves no room for its numbers gets a line of its own above them.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[1] = min(widths[1], columns() - sum(widths) + widths[1] - len(widths) + 1)

    def line(row: Sequence[str]) -> str:
        cells = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        cells += [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        return " ".join(cells).rstrip()

    lines = []
    for mark, name, *numbers in rows:
        if len(name) > widths[1]:
            lines += [*hanging(name, widths[0] + 3, f"{mark.ljust(widths[0])} "), line(("", "", *numbers))]
        else:
            lines.append(line((mark, name, *numbers)))
    return lines
