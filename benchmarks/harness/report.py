"""How a benchmark reports: a table to read, or with ``--json`` one document of the schema ``magus-bench/1``."""

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

SCHEMA = "magus-bench/1"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; ``target`` is what the work asked for, if it asked for something."""

    name: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    target: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the target is met; true without one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.better == "higher" else self.value <= self.target


def timed(action: Callable[[], T], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Seconds of the fastest of ``repeats`` calls, and what the last returned.

    As in ``timeit`` the collector of garbage rests meanwhile: it would go through what earlier figures left behind.
    """
    best, results = float("inf"), list[T]()
    for _ in range(repeats):
        gc.collect()
        gc.disable()
        try:
            begin = clock()
            results[:] = [action()]
            best = min(best, clock() - begin)
        finally:
            gc.enable()
    return best, results[-1]


def parser_of(description: str) -> argparse.ArgumentParser:
    """The command line of a benchmark that is described in the first line of ``description``."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def main(description: str, measure: Callable[[], Iterable[Figure]], argv: Sequence[str] | None = None) -> int:
    """Run a benchmark from the command line; a missed target is reported and is no error."""
    tell(measure(), as_json=parser_of(description).parse_args(argv).json)
    return 0


def tell(figures: Iterable[Figure], *, as_json: bool) -> None:
    """Print each of ``figures`` as soon as it is measured; as JSON one document of all on the standard output."""
    reported = []
    for figure in figures:
        reported.append(figure)
        print(render(figure), file=sys.stderr if as_json else sys.stdout, flush=True)
    if as_json:
        print(json.dumps(document(reported), indent=2))


def document(figures: Iterable[Figure]) -> dict[str, object]:
    """The JSON document of a benchmark."""
    results = [{**asdict(figure), "value": round(figure.value, 6), "ok": figure.ok} for figure in figures]
    return {"schema": SCHEMA, "machine": machine(), "results": results}


def render(figure: Figure) -> str:
    """One line of the table."""
    verdict = ""
    if figure.target is not None:
        relation = ">=" if figure.better == "higher" else "<="
        verdict = f"{'ok' if figure.ok else 'MISSED'}, target {relation} {figure.target:g}"
    return f"{figure.name:<78} {figure.value:>10.4g} {figure.unit:<12} {verdict}".rstrip()


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """Name of the processor; Linux keeps it where ``platform`` does not look."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
            return next(names, platform.processor())
    except OSError:
        return platform.processor()
