"""The figures of docs/papers.md: what ``magus test`` prints. Run as a module, it writes them anew."""

import re
from contextlib import chdir

from magus.examples import PAPERS
from magus.tui.text.wrap import wrapped_to
from tests.helpers.commands import magus
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "papers.md"
HEADING = "`python -m tests.helpers.paper_figures` writes this section; a test compares it with what is printed.\n"
_FIGURE = re.compile(r"`(\d[\d,.]*)( us| %| MiB)?`")


def printed(name: str) -> str:
    """Text that ``magus test`` prints of one paper, such as ``papers/ficco``; its paths begin at the root."""
    with chdir(ROOT), wrapped_to(80):
        done = magus("test", f"examples/{name}.mgs", "--workers", "1")
    assert done.exit_code == 0, done.output
    return done.stdout


def shown_in_page(name: str) -> str:
    """The same text as the page has it; empty if it has none."""
    found = re.search(rf"^### `{name}\.mgs`\n\n```text\n(.*?)```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def figures_in_prose() -> list[str]:
    """Every number in the prose that the page says is in the printed text: those in the font of code."""
    prose, _, _ = PAGE.read_text().partition(HEADING)
    return [figure + unit for figure, unit in _FIGURE.findall(prose)]


def write() -> None:
    """Replace the printed text of all papers in the page."""
    prose, heading, _ = PAGE.read_text().partition(HEADING)
    blocks = (f"\n### `{name}.mgs`\n\n```text\n{printed(name)}```\n" for name in PAPERS)
    PAGE.write_text(prose + heading + "".join(blocks))


if __name__ == "__main__":
    write()
