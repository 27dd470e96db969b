"""Two checkouts of Magus side by side, each in processes of its own that import it as ``magus``."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


@contextmanager
def trees(against: Path | None = None) -> Iterator[dict[str, Path]]:
    """Folders that hold a package ``magus``: ``here``, and ``there`` if another checkout is given.

    Whatever a checkout is called, its package is called ``magus`` there.
    """
    checkouts = {"here": HERE, **({"there": against.resolve()} if against else {})}
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for label, checkout in checkouts.items():
            found[label] = Path(folder, label)
            found[label].mkdir()
            (found[label] / "magus").symlink_to(checkout, target_is_directory=True)
        yield found


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a process that imports from ``folders``, in this order, and keeps its bytecode."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONSAFEPATH": "1"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    return variables
