"""The package with some files changed or added, as after a recipe of CONTRIBUTING, and commands run in it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from magus.simcore.cores.engine import ENVIRONMENT_VARIABLE, Core
from tests.helpers.paths import ROOT

# Commands come in, and what they did goes out, as JSON: one process for all of them.
_RUN = """
import json, sys
from typer.testing import CliRunner
from magus.tui.cli import app
runs = [CliRunner().invoke(app, words) for words in json.load(sys.stdin)]
json.dump([[run.exit_code, run.output, run.stdout] for run in runs], sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Done:
    """Exit code of a command, all its output, and what of that went to stdout."""

    exit_code: int
    output: str
    stdout: str

    @property
    def document(self) -> dict[str, object]:
        """The JSON document that it wrote."""
        assert self.exit_code == 0, self.output
        found: dict[str, object] = json.loads(self.stdout)
        return found


def house_with(folder: Path, changes: Mapping[str, str]) -> Path:
    """The package in ``folder``: ``changes`` are texts by path, all else are links to what is here."""
    package = folder / "magus"
    _link(ROOT, package, {Path(path): text for path, text in changes.items()})
    return package


def _link(source: Path, target: Path, changes: Mapping[Path, str]) -> None:
    target.mkdir()
    inside = {Path(path.parts[0]) for path in changes}
    for entry in source.iterdir():
        if Path(entry.name) not in inside and not entry.name.startswith((".", "__pycache__")):
            (target / entry.name).symlink_to(entry)
    for name in inside:
        deeper = {path.relative_to(name): text for path, text in changes.items() if path.parts[0] == str(name)}
        if set(deeper) == {Path()}:
            (target / name).write_text(deeper[Path()], encoding="utf-8")
        else:
            _link(source / name, target / name, deeper)


def run_in(package: Path, commands: Sequence[Sequence[str | Path]]) -> list[Done]:
    """Run commands of ``magus`` one after the other with the code of ``package``.

    Without the compiled core: a checkout that has no machine code would make it for this place, in twenty seconds.
    """
    environment = {**os.environ, "PYTHONPATH": str(package.parent), ENVIRONMENT_VARIABLE: Core.WINDOWS.value}
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", _RUN], input=words, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [Done(*each) for each in json.loads(done.stdout)]
