"""The command line in this process."""

import json
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from magus.tui.cli import app


def magus(*words: str | Path) -> Result:
    """Run ``magus WORDS``."""
    return CliRunner().invoke(app, [str(word) for word in words])


def document(*words: str | Path) -> dict[str, object]:
    """The JSON that ``magus WORDS --json`` prints."""
    done = magus(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found
