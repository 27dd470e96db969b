"""The shipped examples: small files that each show one thing of the language and of the simulator."""

from importlib.resources import files
from pathlib import Path

__all__ = ["NAMES", "path"]

NAMES = (
    "llama70b_tp8_mi300x",
    "gemm_rs_h100",
    "decode_small_batch",
    "explicit_plan",
    "all_gather_h100",
    "all_reduce_h100",
    "all_to_all_mi300x",
)


def path(name: str) -> Path:
    """Return the path of an example, ``name`` being one of ``NAMES``.

    Raises
    ------
    ValueError
        If there is no such example.
    """
    if name not in NAMES:
        raise ValueError(f"there is no example {name!r}; the examples are {', '.join(NAMES)}")
    return Path(str(files(__name__).joinpath(f"{name}.mgs")))
