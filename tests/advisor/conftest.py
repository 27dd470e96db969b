"""Tests of the advisor simulate much and ask the shipped ranker often; they test no core of the simulator."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_ranker: None) -> None:
    """What advisors in this process share."""
