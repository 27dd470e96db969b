"""Tests of the commands: they simulate, and ask for advice again and again, and test neither simulator nor ranker."""

from collections.abc import Iterator
from functools import cache

import pytest

from magus.advisor.ranker.trees import Ranker

load = Ranker.load
shipped = cache(load)
"""The shipped ranker, read from its files by the first command that asks for it."""


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None) -> Iterator[None]:
    """What commands in this process share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ranker, "load", staticmethod(lambda folder=None: load(folder) if folder else shipped()))
        yield
