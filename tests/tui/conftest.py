"""Tests of the commands: they simulate, and ask for advice again and again, and test neither simulator nor model."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_model: None) -> None:
    """What commands in this process share."""
