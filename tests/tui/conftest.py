"""Tests of the commands: they simulate, and ask for advice again and again, and test neither simulator nor model.

None changes how something is computed, so that what one has computed is found again by the others.
"""

import pytest


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_model: None, kept_results: None) -> None:
    """What commands in this process share."""
