"""What a worker of dask loads first (``--preload``): each answer that it has computed is a line of ``COMPUTED_LOG``."""

import os
from typing import Any

from magus.advisor.questions import computing, elsewhere
from magus.simcore.memo.memo import content_hash

COMPUTED_LOG = "MAGUS_COMPUTED_LOG"


def dask_setup(worker: object) -> None:
    """Have answers of this process logged."""
    path = os.environ[COMPUTED_LOG]
    compute = computing.computed_advice

    def logged(proposals: Any, scenario: Any, options: Any, *rest: Any) -> Any:
        found = compute(proposals, scenario, options, *rest)
        with open(path, "a", encoding="ascii") as file:  # one short write: lines stay whole
            file.write(content_hash((scenario, options)) + "\n")
        return found

    vars(elsewhere)["computed_advice"] = logged
    with open(f"{path}.{os.getpid()}", "w", encoding="ascii"):  # ready: a slow machine takes its time to get here
        pass
