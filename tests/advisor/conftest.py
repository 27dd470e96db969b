"""Tests of the advisor simulate much and ask the shipped model often; they test no core of the simulator."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_model: None) -> None:
    """What advisors in this process share."""
