"""The documentation as a site; ``make docs`` builds it, without network.

``docs/reference`` is written from the code each time, and git ignores it.
"""

import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path

import typer
from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, String, Text
from sphinx.application import Sphinx

from magus import __version__
from magus.tui.cli import app as commands

DOCS = Path(__file__).parent
FACES = ("magus.advisor", "magus.compiler", "magus.simcore")
WORDS = tomllib.loads((DOCS.parent / "grammar" / "words.toml").read_text())

project, author, release = "Magus", "the authors of Magus", __version__
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
myst_heading_anchors = 4
autodoc_typehints = "description"
add_module_names = False
exclude_patterns = ["plans", "editors"]


class MgsLexer(RegexLexer):
    """Colours of ``.mgs``: the words that begin a statement or join parts of its head, numbers, text, comments."""

    tokens = {  # noqa: RUF012 - as pygments wants it
        "root": [
            (r"#.*", Comment),
            (r'"[^"\n]*"', String),
            (r"\d[\d.]*( ?(?:[KMGT]i?B(?:/s)?|[MGT]b/s|us|ns|ms|%|cycles|TFLOP/s))?", Number),
            (words(tuple({**WORDS["file"], **WORDS["head"]}), prefix=r"\b", suffix=r"\b"), Keyword),
            (r"\w+", Name),
            (r"\s+|.", Text),
        ]
    }


def _options() -> str:
    """Return the help of each command, as the terminal shows it."""
    group = typer.main.get_command(commands)
    with typer.Context(group, info_name="magus") as context:
        assert isinstance(group, typer.core.TyperGroup)
        found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
        pages = [
            f"## {name}\n\n```text\n{each.get_help(typer.Context(each, info_name=name, parent=context))}\n```\n"
            for name, each in found
            if each is not None
        ]
    return "# Options of commands\n\n" + "\n".join(pages)


def _words() -> str:
    """Return each section of the words of the language as a table."""
    tables = []
    for section, meanings in WORDS.items():
        rows = "\n".join(f"| `{word}` | {meaning.replace('|', chr(92) + '|')} |" for word, meaning in meanings.items())
        tables.append(f"## {section}\n\n| word | meaning |\n|---|---|\n{rows}\n")
    return "# Words of the language\n\n" + "\n".join(tables)


def _api() -> str:
    """Return what programs may import: the names of each face, which imports them from their homes when asked."""
    parts = ["# Python", "What programs import. Modules that are not listed here may change."]
    for face in FACES:
        module = import_module(face)
        parts += [f"## {face}", inspect.getdoc(module) or ""]
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing):
                parts.append(f"`{name}` = {thing!r}")
                continue
            kind = "autoclass" if inspect.isclass(thing) else "autofunction"
            members = "\n   :members:" if inspect.isclass(thing) else ""
            parts.append(f"```{{eval-rst}}\n.. {kind} :: {thing.__module__}.{name}{members}\n```".replace(" ::", "::"))
    return "\n\n".join(parts) + "\n"


def _written(app: Sphinx) -> None:
    pages = {"options": _options(), "words": _words(), "api": _api()}
    (DOCS / "reference").mkdir(exist_ok=True)
    for name, text in pages.items():
        (DOCS / "reference" / f"{name}.md").write_text(text)


def _of_the_site(app: Sphinx, name: str, source: list[str]) -> None:
    """Show CONTRIBUTING.md as a page; lead its links into the site, and name files of the checkout without a link."""
    text = (DOCS.parent / "CONTRIBUTING.md").read_text() if name == "contributing" else source[0]
    text = text.replace("](../CONTRIBUTING.md)", "](contributing.md)").replace("](docs/", "](")
    source[0] = re.sub(r"\[([^\]]*)\]\((?:\.\./examples|editors/)[^)]*\)", r"\1", text)


def setup(app: Sphinx) -> None:
    """Write what is made from code, and colour the language."""
    app.add_lexer("mgs", MgsLexer)
    app.connect("builder-inited", _written)
    app.connect("source-read", _of_the_site)
