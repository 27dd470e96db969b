"""Tests of the commands: they simulate, and ask for advice again and again, and test neither simulator nor model.

None changes how something is computed, so that what one has computed is found again by the others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from magus.tui.text import progress


@pytest.fixture(scope="module", autouse=True)
def shared(compiled_core: None, one_model: None, kept_results: None) -> Iterator[None]:
    """What commands in this process share; none says on stderr how far it is because the machine is busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "EVERY_S", 600.0)
        yield


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with the text ``FILE`` of the module of a test."""
    path = tmp_path / "a.mgs"
    path.write_text(request.module.FILE)
    return path
