"""Every dump in ``golden/machines``: its system as a golden file, which compiles and is simulated.

MAGUS_UPDATE_GOLDEN=1 writes the golden files anew.
"""

import os
from pathlib import Path

import pytest

from magus.compiler import compile_text
from magus.compiler.planning.build import declared
from magus.compiler.text.fmt import format_text
from magus.simcore import simulate_op
from tests.helpers.machines import GPU, dumps, imported

pytestmark = pytest.mark.usefixtures("compiled_core")
UPDATE = "MAGUS_UPDATE_GOLDEN"
DUMPS = pytest.mark.parametrize("dump", dumps(), ids=lambda path: path.name)
WORKLOAD = """
workload alone on node { x = tensor bf16[ROWS, 512] shard rows; y = all_gather(x) }
schedule mine for alone = direct(chunks=CHUNKS, engine=sm(8))
"""


def text_of(dump: Path) -> str:
    return imported(dump.read_text(), GPU.get(dump.name, ""), dump.name)[1]


@DUMPS
def test_the_system_of_a_dump(dump: Path) -> None:
    golden = dump.with_name(f"{dump.name}.mgs")
    text = text_of(dump)
    if os.environ.get(UPDATE):
        golden.write_text(text)

    assert text == golden.read_text()
    assert text == format_text(text)


@DUMPS
def test_a_system_is_simulated(dump: Path) -> None:
    machine, text, _ = imported(dump.read_text(), GPU.get(dump.name, ""))
    ranks = len(machine.gpus)
    workload = WORKLOAD.replace("ROWS", str(64 * ranks)).replace("CHUNKS", str(ranks))

    scenario = compile_text(text + workload).scenario().case
    result = simulate_op(scenario, declared(scenario, scenario.schedules[0]), unit_bytes=1024)

    assert scenario.num_ranks == ranks
    assert scenario.gpu.name == machine.model.name
    assert result.makespan_ticks > 0
