"""Branch coverage of each room of Magus, from the JSON report of coverage.py: ``python FILE coverage.json``."""

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

LAYERS = ("grammar", "compiler", "simcore", "runtime", "advisor", "tui")
LEAST_SHOWN = 5
"""Files with fewer branches that no test takes are not named."""


def room_of(path: str) -> str:
    """Return the room of a module, such as ``simcore/fold``; the layer for one outside any; empty if not of Magus."""
    parts = PurePath(path).parts
    begin = next((at for at in reversed(range(len(parts))) if parts[at] in LAYERS), None)
    return "" if begin is None else "/".join(parts[begin:-1][:2])


def report(files: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of text: the share of branches and of lines that ran, by room, then the files with most branches bare."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    bare: list[tuple[int, str]] = []
    for path, found in files.items():
        counts = found["summary"]
        bare.append((counts["missing_branches"], path))
        for name in {room_of(path), room_of(path).partition("/")[0], "all"} if room_of(path) else ():
            of = ("covered_branches", "num_branches", "covered_lines", "num_statements")
            sums[name] = [one + counts[key] for one, key in zip(sums[name], of, strict=True)]
    lines = [f"{'room':28}{'branches':>18}{'lines':>20}"]
    for name, (branches, num_branches, covered, num_lines) in sorted(sums.items()):
        lines.append(f"{name:28}{_share(branches, num_branches):>18}{_share(covered, num_lines):>20}")
    lines += ["", "branches that no test takes, by file"]
    return lines + [f"{count:6} {path}" for count, path in sorted(bare, reverse=True)[:30] if count >= LEAST_SHOWN]


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {100 * part / whole:5.1f}%" if whole else "-"


if __name__ == "__main__":
    print("\n".join(report(json.loads(Path(sys.argv[1]).read_text())["files"])))
