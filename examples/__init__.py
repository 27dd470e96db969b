"""The shipped examples: files that each show one thing, and papers: what others measured or simulated, held to."""

from importlib.resources import files
from pathlib import Path

__all__ = ["NAMES", "PAPERS", "path"]

NAMES = (
    "llama70b_tp8_mi300x",
    "gemm_rs_h100",
    "decode_small_batch",
    "explicit_plan",
    "all_gather_h100",
    "all_reduce_h100",
    "all_to_all_mi300x",
)
PAPERS = (
    "papers/astra_sim",
    "papers/conccl",
    "papers/dma_engines",
    "papers/eidola",
    "papers/ficco",
    "papers/gemm_ar_mi355x",
    "papers/syncopate",
)


def path(name: str) -> Path:
    """Return the path of an example, ``name`` being one of ``NAMES`` or ``PAPERS``.

    Raises
    ------
    ValueError
        If there is no such example.
    """
    if name not in (*NAMES, *PAPERS):
        raise ValueError(f"there is no example {name!r}; the examples are {', '.join((*NAMES, *PAPERS))}")
    return Path(str(files(__name__).joinpath(f"{name}.mgs")))
