"""Tests of the adviser simulate much and test no core of the simulator."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def simulates_compiled(compiled_core: None) -> None:
    """Each test of this folder."""
