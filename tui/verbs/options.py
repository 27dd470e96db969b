"""Options that several commands share, and how their texts are read."""

import os
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import click
import typer
from click.core import ParameterSource

from ..drawing import Shows

DEFAULT_WORKERS = min(4, os.cpu_count() or 1)
MAX_SEED = (1 << 31) - 1
"""Largest seed of a corpus: a store has no numbers of any length."""


def given_options(*names: str) -> frozenset[str]:
    """Return those of the options of the command that runs, such as ``--top``, that stand on the command line."""
    context = click.get_current_context()
    source = {name: context.get_parameter_source(name.removeprefix("--").replace("-", "_")) for name in names}
    return frozenset(name for name, found in source.items() if found is ParameterSource.COMMANDLINE)


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A scenario, FILE.mgs; - reads it from stdin.")]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios; - is stdin.")]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", metavar="W", help="The workload; default: the first.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", metavar="S", help="A declared name, a template expression, or a plan file: .json, .py."),
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a param of the file.")]
DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="A folder of measured times, as CSV.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit 3 if the profile is not validated for the question.")
]


class OutFile(click.Path):
    """A file that a command writes: it is known whether that can be before the work whose result goes there."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)


Out = partial(typer.Option, metavar="OUT", click_type=OutFile())
Count = partial(typer.Option, metavar="N", min=1)
"""Options of a file to write, and of a number above zero."""
OutOption = Annotated[Path | None, Out("-o", help="Write to this file, not to stdout.")]
TraceOption = Annotated[
    Path | None, Out("--trace", help="Write the run as a trace for Perfetto; OUT.json or OUT.json.gz.")
]


def with_png(path: Path | None) -> Path | None:
    """Return the file of a picture; PNG needs an extra."""
    if path is not None and path.suffix.lower() == ".png" and find_spec("resvg_py") is None:
        message = "PNG needs resvg_py, which is not installed: pip install 'magus-gpu[png]', or write OUT.svg"
        raise typer.BadParameter(message)
    return path


def png_file(path: Path | None) -> Path | None:
    """Return the file of ``--png``, OUT.png."""
    if path is not None and path.suffix.lower() != ".png":
        raise typer.BadParameter(f"'{path}' is not the name of a PNG file: OUT.png")
    return with_png(path)


SvgOption = Annotated[Path | None, Out("--svg", help="Draw the run to this file, OUT.svg.")]
PngOption = Annotated[Path | None, Out("--png", callback=png_file, help="Draw it to this file, OUT.png.")]
ShowsOption = Annotated[Shows, typer.Option("--draw", help="What is drawn.")]
PlotOption = Annotated[
    Path | None, Out("--plot", callback=with_png, help="Draw the gain over one or two params: .svg, .png.")
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", envvar="MAGUS_NO_CACHE", help="Use no results on disk.")]
SweptOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUES", help='Values of a param: "M=16..65536 x2", M=16,64, or one.'),
]
ToleranceOption = Annotated[
    float, typer.Option("--tolerance", min=0, max=50, metavar="PERCENT", help="Loss that is taken for fewer rules.")
]
TopOption = Annotated[
    int, Count("--top", max=512, help="Simulate the N schedules ranked best, but for some far behind.")
]
BespokeOption = Annotated[
    int, typer.Option("--bespoke", min=0, max=100_000, metavar="N", help="Search N plans of unequal chunks; 0: none.")
]
NoVerifyOption = Annotated[
    bool,
    typer.Option(
        "--no-verify", help="Predict times, simulate nothing; of a layer, simulate schedules, but try no small changes."
    ),
]
OverOption = Annotated[
    str | None,
    typer.Option("--over", metavar="PARAM", help="With --threshold of several ops: the parameter that varies."),
]
TunedOption = Annotated[
    Path | None,
    typer.Option("--kernel", metavar="KERNEL.py[::NAME]", help="Try the tiles for which this kernel is tuned."),
]
SensitivityOption = Annotated[
    bool, typer.Option("--sensitivity", help="Find hardware numbers that change the answer if they are 10 % off.")
]
WorkersOption = Annotated[int, Count("--workers", max=64, help="Number of threads or processes that simulate.")]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Have it done by a dask cluster: tcp://host:8786.")
]


def seconds_of(text: str) -> float:
    """Seconds in a time such as ``10s``, ``500 ms``, ``2min``; a number alone is one of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(ms|s|min|)", text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(
            f"{text!r} is no time above zero; write for instance 10s or 2min", param_hint="--within"
        )
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0, "": 1.0}[found[2]]


def settings_of(texts: list[str] | None, word: str = "--set") -> tuple[tuple[str, str], ...]:
    """Pairs of name and value from texts ``NAME=VALUE``; a text without ``=`` is a usage error, and a name twice."""
    pairs: list[tuple[str, str]] = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=word)
        if name.strip() in (known for known, _ in pairs):
            raise typer.BadParameter(f"{name.strip()} is given twice", param_hint=word)
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)
