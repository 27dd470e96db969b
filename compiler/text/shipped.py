"""The libraries that ship: their names, their texts, and which of them declares a name."""

import re
from functools import cache
from importlib.resources import files
from itertools import dropwhile, takewhile

LIBRARY = files((__package__ or "").rpartition(".")[0]).joinpath("library")
"""The folder of what ships: a folder for each vendor, in it a file for each library."""
_LIBRARY_NAME = re.compile(r"[a-z0-9_]+/[a-z0-9_]+")


@cache
def shipped_libraries() -> tuple[str, ...]:
    """Return the names of all shipped libraries, as ``use`` takes them."""
    vendors = [vendor for vendor in LIBRARY.iterdir() if vendor.is_dir()]
    names = [f"{vendor.name}/{entry.name.removesuffix('.mgs')}" for vendor in vendors for entry in vendor.iterdir()]
    return tuple(sorted(name for name in names if _LIBRARY_NAME.fullmatch(name)))


STACKS_FOLDER = "stacks/"
"""Where shipped libraries of stacks are; each declares one of its own name."""


def shipped_stacks() -> tuple[str, ...]:
    """Return the names of all shipped stacks, as schedules of steps take them."""
    return tuple(name.removeprefix(STACKS_FOLDER) for name in shipped_libraries() if name.startswith(STACKS_FOLDER))


@cache
def library_about(name: str) -> str:
    """Return the first sentence of the comment above the first declaration of a shipped library, empty without one."""
    lines = dropwhile(lambda line: not line.startswith("# "), library_text(name).splitlines())
    comment = " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines))
    return comment.partition(". ")[0].removesuffix(".")


def library_text(name: str) -> str:
    """Return the text of a shipped library."""
    vendor, short = name.split("/")
    return LIBRARY.joinpath(vendor, f"{short}.mgs").read_text(encoding="utf-8")


@cache
def shipped_devices(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the shipped libraries that declare each name of a kind, such as each ``link``."""
    declared = re.compile(rf"^{kind} (\w+)", re.MULTILINE)
    found: dict[str, tuple[str, ...]] = {}
    for library in shipped_libraries():
        for name in declared.findall(library_text(library)):
            found[name] = (*found.get(name, ()), library)
    return found
