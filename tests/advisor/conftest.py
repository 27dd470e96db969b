"""Tests of the advisor simulate much and ask the shipped model often; they test no core of the simulator."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_model: None) -> None:
    """What advisors in this process share."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes of dask, of one thread each."""
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as opened:
        yield opened
