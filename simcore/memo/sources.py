"""What decides a result beside the question: the files of the packages that compute it, and what they run on."""

import os
import platform
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]


class UnknownSourcesError(RuntimeError):
    """The files of a package cannot be read."""


@cache
def sources_digest(packages: tuple[str, ...], root: Path = ROOT) -> str:
    """Return a hash of all files of ``packages`` of Magus, of the versions of Python and numpy, and of the machine.

    The content of the files is hashed, some 10 ms for all packages. Their times and sizes say less: where an installer
    sets the times, two versions of a file may share both.

    Raises
    ------
    UnknownSourcesError
        If the files of a package are not on disk, as in an archive, or cannot be read.
    """
    digest = sha256(f"{sys.version} {np.__version__} {sys.platform} {platform.machine()}".encode())
    for package in packages:
        files = _files(os.path.join(root, package))
        if not files:
            raise UnknownSourcesError(f"no files of {package} in {root}")
        for file in files:
            content = _content(file)
            digest.update(f"\n{file.removeprefix(str(root))} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _files(folder: str) -> list[str]:
    """Return the files in ``folder`` and below it in order, without bytecode and machine code."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.join(place, name) for name in names]
    return sorted(found)


def _content(file: str) -> bytes:
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.read()
    except OSError as error:
        raise UnknownSourcesError(f"{file}: {error.strerror}") from error
