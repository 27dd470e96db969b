"""Figures of the documents that simulations give. ``python -m tests.helpers.figures`` writes them anew.

docs/papers.md has a table of what papers publish and what Magus has, and ends with what ``magus test`` prints of each;
docs/moe.md ends with that of two examples. Other pages state figures in sentences: a file of tests/golden/figures,
named after the page, shows each, and its published text is the sentence with ``{}`` in its place.
"""

import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from magus.examples import PAPERS
from magus.tui.text.door import wrapped_to
from tests.helpers.commands import document, magus
from tests.helpers.paths import GOLDEN, ROOT

DOCS = ROOT / "docs"
PAPERS_PAGE = DOCS / "papers.md"
PRINTED = {**dict.fromkeys(PAPERS, "papers"), "moe/experts_v4_pro": "moe", "moe/deepseek_v3_two_batches": "moe"}
"""The pages that end with what is printed of examples, by example."""
FIGURE_FILES = sorted((GOLDEN / "figures").iterdir())
_BEGIN = "`python -m tests.helpers.figures` writes this section; a test compares it with what is printed.\n"
_TABLE = "| file | published | Magus | |\n|---|---|---|---|\n"
_STANDINGS = {"passed": "expected", "shown": "shown"}
_IN_PROSE = re.compile(r"`(\d[\d,.]*)( us| %| MiB)?`")


def printed(example: str) -> str:
    """Text that ``magus test`` prints of one example, such as ``papers/ficco``."""
    with chdir(ROOT), wrapped_to(80):
        done = magus("test", f"examples/{example}.mgs", "--workers", "1")
    assert done.exit_code == 0, done.output
    return done.stdout


def shown_in_page(example: str) -> str:
    """The same text as its page has it; empty if it has none."""
    pattern = rf"^### `{example}\.mgs`\n\n```text\n(.*?)```$"
    found = re.search(pattern, (DOCS / f"{PRINTED[example]}.md").read_text(), re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def compared(example: str) -> str:
    """Rows of the table of a paper: file, what is published, what Magus has, and whether that is expected or shown."""
    found: Any = document("test", ROOT / f"examples/{example}.mgs", "--workers", "1")
    rows = (
        (f"`{Path(example).name}`", each["published"], _has(each), _STANDINGS[each["standing"]])
        for each in found["files"][0]["statements"]
        if each["published"] is not None
    )
    return "".join(f"| {' | '.join(cell.replace('|', '') for cell in row)} |\n" for row in rows)


def _has(statement: dict[str, Any]) -> str:
    """What Magus has: the values, of a sweep those of its first and last point."""
    if statement["sweep"] is None:
        return _values(statement["values"])
    name, points = statement["sweep"]["param"], statement["sweep"]["points"]
    return "; ".join(f"{name} {each['setting']}: {_values(each['values'])}" for each in (points[0], points[-1]))


def _values(values: dict[str, Any]) -> str:
    def text(value: float | str, unit: str) -> str:
        return value if isinstance(value, str) else f"{value:.4g} {unit}".strip()

    return " against ".join(text(**each) for each in values.values())


def compared_in_page() -> str:
    """All rows of that table as docs/papers.md has them."""
    _, _, after = PAPERS_PAGE.read_text().partition(_TABLE)
    return after.partition("\n\n")[0] + "\n"


def figures_in_prose() -> list[str]:
    """The numbers in the font of code in the prose of docs/papers.md, which says that they are printed below."""
    prose, _, _ = PAPERS_PAGE.read_text().partition(_BEGIN)
    return [figure + unit for figure, unit in _IN_PROSE.findall(prose)]


def sentences(file: Path) -> Iterator[tuple[str, float]]:
    """Each sentence of a file of figures with ``{}`` for its figure, and the figure, in percent before ``%``."""
    found: Any = document("test", file, "--workers", "1")
    for statement in found["files"][0]["statements"]:
        (value,) = statement["values"].values()
        sentence = statement["published"]
        yield sentence, value["value"] * (100 if "{} %" in sentence and not value["unit"] else 1)


def pattern_of(sentence: str) -> re.Pattern[str]:
    """Pattern of a sentence wherever its page breaks lines, with its figure as the group."""
    before, after = (r"\s+".join(map(re.escape, part.split())) for part in sentence.split("{}"))
    spaces = [r"\s+" if part[-1:].isspace() or part[:1].isspace() else "" for part in sentence.split("{}")]
    return re.compile(before + spaces[0] + r"(-?\d[\d.]*)" + spaces[1] + after)


def as_written(number: float, written: str) -> str:
    """A number with as many decimals as ``written`` has."""
    return f"{number:.{len(written.partition('.')[2])}f}"


def write() -> None:
    """Write the printed text of all papers, and every figure, into their pages."""
    for name in dict.fromkeys(PRINTED.values()):
        page = DOCS / f"{name}.md"
        prose, begin, _ = page.read_text().partition(_BEGIN)
        examples = [each for each in PRINTED if PRINTED[each] == name]
        blocks = (f"\n### `{each}.mgs`\n\n```text\n{printed(each)}```\n" for each in examples)
        page.write_text(prose + begin + "".join(blocks))
    before, head, _ = PAPERS_PAGE.read_text().partition(_TABLE)
    after = PAPERS_PAGE.read_text().partition(_TABLE)[2].partition("\n\n")[2]
    PAPERS_PAGE.write_text(before + head + "".join(map(compared, PAPERS)) + "\n" + after)
    for file in FIGURE_FILES:
        page = DOCS / f"{file.stem}.md"
        text = page.read_text()
        for sentence, number in sentences(file):
            (found,) = pattern_of(sentence).finditer(text)
            start, end = found.span(1)
            text = text[:start] + as_written(number, found.group(1)) + text[end:]
        page.write_text(text)


if __name__ == "__main__":
    write()
