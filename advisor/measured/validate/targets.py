"""References for the errors of ``magus validate``: targets, the noise of measurements, and other models.

All are in percent of the measured time.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ....compiler.ir import Gpu
from ....compiler.text.units import bytes_text
from ....simcore.kernels.nccl import NEVER_BYTES, NcclCollective, early_switch
from ..tables.csv_rows import EVERY, FIT, HELD_OUT
from ..tables.gemm import ALL, LARGE, LONG, profile_of

TARGETS: Mapping[tuple[str, str], float] = {
    (ALL, EVERY): 9.0,
    (LARGE, "m >= 512"): 6.0,
    (LONG, HELD_OUT): 7.0,
    ("ratio M/8", EVERY): 10.0,
    ("ratio K/8", EVERY): 10.0,
    ("all_gather", EVERY): 5.5,
    ("reduce_scatter", EVERY): 5.5,
    ("all_reduce", EVERY): 5.5,
    ("all_to_all", EVERY): 6.0,
    ("SM copy", EVERY): 10.0,
}
"""Targets for the mean error (MAPE), by operation and group."""

MEDIAN_TARGETS: Mapping[str, float] = {
    "hottest experts": 15.0,
    "experts": 12.0,
    "attention context": 15.0,
    "attention generation": 25.0,
    "mla context": 15.0,
    "mla generation": 25.0,
    "mega_moe layer, hottest rank": 12.0,
    "mega_moe layer": 8.0,
    " dispatch": 12.0,
    " combine": 12.0,
}
"""Targets for the median error of rows that nothing was fitted to, by what the name of an operation has in it."""


def median_target(operation: str, group: str) -> float | None:
    """Return the target for the median error of a group, None if there is none or constants were fitted to its rows."""
    named = (bound for part, bound in MEDIAN_TARGETS.items() if part in operation)
    return None if group.startswith((EVERY, FIT)) else next(named, None)


_TWO_FRAMEWORKS = "the same GPU and shape under TensorRT-LLM and under vLLM (aiconfigurator)"
_RINGS = ("all_gather", "reduce_scatter", "all_reduce")
_TWO_SOURCES = "two sources, 8 GPUs, 256 MiB (aiconfigurator; node acceptance logs)"


@dataclass(frozen=True, slots=True)
class Reference:
    """Errors from other sources for one group of some operations, by GPU; an empty name stands for any GPU."""

    operations: tuple[str, ...]
    group: str
    what: str
    percent: Mapping[str, str]

    def on(self, gpu: str) -> str | None:
        """Return the error on a GPU, None if it is unknown."""
        return self.percent.get(gpu, self.percent.get(""))


FLOORS = (
    Reference((LARGE,), "m >= 512", _TWO_FRAMEWORKS, {"A100": "2.8", "H100": "5.7", "B200": "6.4"}),
    Reference(("ratio M/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "4.2", "H100": "6.7", "B200": "7.4"}),
    Reference(("ratio N/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "3.1", "H100": "5.8", "B200": "7.0"}),
    Reference(("ratio K/8",), EVERY, _TWO_FRAMEWORKS, {"A100": "3.0", "H100": "5.7", "B200": "6.2"}),
    Reference(("all_gather",), EVERY, _TWO_SOURCES, {"H100": "2.5"}),
    Reference(("reduce_scatter",), EVERY, _TWO_SOURCES, {"H100": "6"}),
    Reference(("all_reduce",), EVERY, f"{_TWO_SOURCES}; algorithms differ", {"H100": "16"}),
    Reference(("all_to_all",), EVERY, _TWO_SOURCES, {"H100": "1"}),
)
"""The noise floor: the difference between two measurements of the same. No smaller error can be verified."""

BASELINES = (
    Reference(
        (ALL,),
        EVERY,
        "a roofline of four constants, fitted to the same rows",
        {"A100": "13.4", "H100": "10.3", "B200": "14.0"},
    ),
    Reference(
        (LARGE,),
        "m >= 512",
        "nvMatmulHeuristics (as reported, another set of shapes)",
        {"A100": "7", "H100": "21", "H200": "19", "B200": "32"},
    ),
    Reference(tuple(f"ratio {axis}/8" for axis in "MNK"), EVERY, "cutting is free, a ratio of 1", {"": "30-47"}),
    Reference(_RINGS, EVERY, "alpha-beta models (as reported, other sets)", {"": "10-22"}),
    Reference(_RINGS, EVERY, "Meta's model of NCCL (as reported, another set)", {"": "34-67"}),
)
"""Other models for comparison; some were evaluated on other rows, as stated."""


@cache
def notes_of(part: str) -> tuple[str, ...]:
    """Return the notes of a part of the report, as ``notes.toml`` has them."""
    text = files(__package__ or "").joinpath("notes.toml").read_text(encoding="utf-8")
    return tuple(" ".join(note.split()) for note in tomllib.loads(text)[part])


NOTES = notes_of("errors")


MEASURED_RANKS = (8, 4, 2)


def early_switches(gpus: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each GPU and operation with an early switch, for the largest number of GPUs."""
    for name in gpus:
        gpu = profile_of(name)
        if gpu is not None and gpu.collectives is not None:
            for operation in NcclCollective:
                yield from _sentence(gpu, operation)


def _sentence(gpu: Gpu, operation: NcclCollective) -> Iterator[str]:
    for ranks in MEASURED_RANKS:
        try:
            switch = early_switch(gpu, operation, ranks)
        except ValueError:
            return  # the profile has no such operation
        if switch is not None:
            gain = f"pays from {bytes_text(switch.pays_from_bytes)} on"
            gain = gain if switch.pays_from_bytes < NEVER_BYTES else "never pays"
            yield (
                f"{gpu.name} {operation.value} on {ranks} GPUs: {switch.taken.protocol.value} from "
                f"{bytes_text(switch.from_bytes)} on takes {switch.taken.us:.0f} us there, "
                f"{switch.better.protocol.value} would take {switch.better.us:.0f}; it {gain}"
            )
            return
