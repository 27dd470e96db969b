"""``magus plan --format mscclpp``: a schedule of a lone collective as an execution plan of MSCCL++."""

import json
from pathlib import Path

from ....compiler.planfile.mscclpp.write import mscclpp_document
from ....compiler.resolve.schedules.from_text import resolve_schedule
from ...exit_codes import Exit
from ...text.door import put_text
from ..console import save, show
from ..inputs import ScenarioInput
from ..running import run_command


def print_mscclpp(source: ScenarioInput, *, schedule: str | None, out: Path | None) -> Exit:
    """Write the execution plan of ``schedule`` to ``out`` or stdout; None is the first that the file declares."""

    def action() -> Exit:
        scenario = source.scenario()
        chosen = resolve_schedule(scenario, schedule, show)
        text = json.dumps(mscclpp_document(scenario, chosen), indent=1) + "\n"
        if out is not None:
            return save(out, text, f"{out}: {chosen.expression}")
        put_text(text)
        return Exit.DONE

    return run_command(action)
