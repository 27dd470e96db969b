"""Answers of a tree, kept to compare with another: what the command line prints for all shipped examples.

``freeze FILE`` writes them, ``check FILE`` prints where this tree answers otherwise, and exits with 1 if it does. Both
take the parts to look at: ``pairs`` (advice on workloads of one op), ``layers`` (advice on the others), ``results``
(a hash of each simulation), ``plans`` and ``exits`` (codes of wrong commands). Every answer is computed: no results are
on disk. Wall times are no part of an answer. Of layers the time of each workload is compared: ``check`` allows one that
is faster, or slower by no more than 0.5 %.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from .harness.checkouts import HERE, environment, trees

Answers = dict[str, object]
"""By the command line: a document without times of the clock, a hash, or an exit code."""

MOST_SLOWER = 0.005
"""Share of time by which a layer may be slower than before."""

SCHEDULES_OF_EACH = 4
"""Feasible schedules of each workload that are simulated, evenly spread over the list."""

_OF_THE_CLOCK = frozenset({"timing", "source", "seconds", "version"})

WRONG = (
    "check missing.mgs",
    "advise missing.mgs",
    "simulate examples/llama70b_tp8_mi300x.mgs --schedule no_such",
    "simulate examples/llama70b_tp8_mi300x.mgs --workload no_such",
    "simulate examples/llama70b_tp8_mi300x.mgs --set NO=1",
    "plan examples/layers/llama70b_layer.mgs --schedule no_such",
    "export examples/llama70b_tp8_mi300x.mgs --for no_such",
    "advise examples/llama70b_tp8_mi300x.mgs --top 0",
)


def main() -> int:
    """Freeze or check from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=["freeze", "check"])
    parser.add_argument("file", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--jobs", type=int, default=1, help="commands at one time")
    chosen = parser.parse_args()
    parts = chosen.parts or list(PARTS)
    with trees() as folders, ThreadPoolExecutor(chosen.jobs) as pool:
        found = {part: PARTS[part](magus=_Magus(folders["here"], pool)) for part in parts}
    if chosen.do == "freeze":
        known = json.loads(chosen.file.read_text()) if chosen.file.exists() else {}
        chosen.file.write_text(json.dumps(known | found, indent=1, sort_keys=True))
        return 0
    frozen = json.loads(chosen.file.read_text())
    differences = [text for part in parts for text in COMPARED[part](frozen[part], found[part])]
    print("\n".join(differences) or f"no difference in {', '.join(parts)}")
    return int(bool(differences))


class _Magus:
    """Runs commands of this tree, each in a process of its own that finds no results on disk."""

    def __init__(self, tree: Path, pool: ThreadPoolExecutor) -> None:
        self._tree, self.pool = tree, pool

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return the finished command."""
        with tempfile.TemporaryDirectory() as cache:
            code = "import sys; from magus.tui.cli import main; sys.exit(main())"
            return subprocess.run(
                [sys.executable, "-c", code, *words],
                cwd=HERE,
                env={**environment(self._tree), "MAGUS_CACHE_DIR": cache, "COLUMNS": "120"},
                capture_output=True,
                text=True,
                check=False,
            )

    def document(self, *words: str) -> object:
        """Return what ``--json`` prints, without times of the clock; of a command that fails the last line."""
        done = self.run(*words, "--json")
        if done.returncode not in (0, 1):
            return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
        return _without_clock(json.loads(done.stdout))


def _without_clock(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_clock(each) for key, each in value.items() if key not in _OF_THE_CLOCK}
    return [_without_clock(each) for each in value] if isinstance(value, list) else value


def _files(*folders: str) -> list[str]:
    return [str(path.relative_to(HERE)) for folder in folders for path in sorted((HERE / folder).glob("*.mgs"))]


def _advice(*folders: str, magus: _Magus) -> Answers:
    files = _files(*folders)
    return dict(zip(files, magus.pool.map(lambda file: magus.document("advise", file), files), strict=True))


def _results(magus: _Magus) -> Answers:
    """Of each pair some feasible schedules, of each layer those that it declares."""
    commands: list[tuple[str, ...]] = []
    for file in _files("examples", "examples/templates"):
        listed = magus.document("schedules", file)
        assert isinstance(listed, dict), f"{file}: {listed}"
        names = listed["schedules"]
        chosen = names[:: max(1, len(names) // SCHEDULES_OF_EACH)][:SCHEDULES_OF_EACH]
        commands += [("simulate", file, "--granularity", "packet", "--schedule", name) for name in chosen]
    commands += [("simulate", file, "--granularity", "packet") for file in _files("examples/layers")]
    return _hashes(magus, commands)


def _plans(magus: _Magus) -> Answers:
    return _hashes(magus, [("plan", file) for file in _files("examples", "examples/templates", "examples/layers")])


def _hashes(magus: _Magus, commands: Sequence[tuple[str, ...]]) -> Answers:
    def hash_of(words: tuple[str, ...]) -> str:
        text = json.dumps(magus.document(*words), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    return dict(zip(map(" ".join, commands), magus.pool.map(hash_of, commands), strict=True))


def _exits(magus: _Magus) -> Answers:
    return {line: magus.run(*line.split()).returncode for line in WRONG}


def _differences(frozen: Answers, found: Answers) -> Iterator[str]:
    for command in sorted(frozen.keys() | found.keys()):
        if command not in frozen or command not in found:
            yield f"{command}: only {'now' if command in found else 'before'}"
        elif frozen[command] != found[command]:
            yield f"{command}: {next(_places(frozen[command], found[command]))}"


def _places(before: object, now: object, place: str = "") -> Iterator[str]:
    """Yield where two documents differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                yield from _places(before.get(key), now.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            if old != new:
                yield from _places(old, new, f"{place}[{number}]")
    else:
        yield f"{place}: {str(before)[:80]} before, {str(now)[:80]} now"


def _slower(frozen: Answers, found: Answers) -> Iterator[str]:
    for command in sorted(frozen.keys() | found.keys()):
        old, new = _best_us(frozen.get(command)), _best_us(found.get(command))
        for name in sorted(old.keys() | new.keys()) or [""]:
            before, now = old.get(name), new.get(name)
            if before is None or now is None or now > before * (1 + MOST_SLOWER):
                yield f"{command} {name}: {before} us before, {now} us now"


def _best_us(answer: object) -> dict[str, float]:
    """By workload the time of the schedule that is recommended; empty if there is no answer."""
    if not isinstance(answer, dict):
        return {}
    advices = answer.get("workloads", [answer])
    return {each["scenario"]: _recommended_us(each) for each in advices if "recommended" in each}


def _recommended_us(advice: Any) -> float:
    recommended = advice["recommended"]
    if isinstance(recommended, dict):  # frozen before layers had the document of pairs
        return float(recommended["us"])
    (found,) = (each for each in advice["candidates"] if each["schedule"] == recommended)
    return float(found["simulated_us"] or found["predicted_us"])


PARTS: dict[str, Callable[..., Answers]] = {
    "pairs": partial(_advice, "examples", "examples/templates"),
    "layers": partial(_advice, "examples/layers"),
    "results": _results,
    "plans": _plans,
    "exits": _exits,
}
COMPARED: Mapping[str, Callable[[Answers, Answers], Iterator[str]]] = {
    **dict.fromkeys(PARTS, _differences),
    "layers": _slower,
}

if __name__ == "__main__":
    sys.exit(main())
