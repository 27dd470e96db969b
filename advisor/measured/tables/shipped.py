"""The tables that ship with Magus, measured for it (``advisor/measured/rows``)."""

from collections.abc import Iterator
from importlib.resources import as_file, files

from .. import rows
from .beside import beside_comparisons
from .csv_rows import TableComparison
from .gemm_states import order_comparisons, state_comparisons, tile_comparisons

READERS = {
    "beside_*.csv": beside_comparisons,
    "gemm_states_*.csv": state_comparisons,
    "gemm_tiles_*.csv": tile_comparisons,
    "tile_order_*.csv": order_comparisons,
}


def shipped_comparisons() -> Iterator[TableComparison | str]:
    """Yield the rows of all tables that ship, or why rows were left out."""
    with as_file(files(rows)) as folder:
        for pattern, comparisons in READERS.items():
            for path in sorted(folder.glob(pattern)):
                yield from comparisons(path)
