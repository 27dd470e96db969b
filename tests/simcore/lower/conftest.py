"""Tests of lowering: ``differs_from_oracle`` compares all cores, the others take what is fastest."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def simulates_compiled(compiled_core: None) -> None:
    """Each test of this folder."""
