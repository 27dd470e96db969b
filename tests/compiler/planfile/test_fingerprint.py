"""What a plan fits: shapes and ranks, and neither names nor the machine."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import JsonObject, OpCase, Workload
from magus.compiler.planfile.write import fingerprint
from tests.helpers.plans.plans import BODIES, scenario_of, text_of
from tests.helpers.some import some


def fits(scenario: OpCase) -> JsonObject:
    """What a plan of the scenario fits, without the name of its op."""
    found = fingerprint(scenario.system, Workload.of_one(scenario.shape))
    (op,) = found["ops"]
    return found | {"ops": [{key: value for key, value in op.items() if key != "name"}]}


def test_all_workloads_have_fingerprints_of_their_own() -> None:
    found = [fits(scenario_of(body)) for body in BODIES]

    assert all(found.count(each) == 1 for each in some(found))


def test_it_says_ranks_pattern_and_shapes() -> None:
    op = {
        "pattern": "A2A+GEMM",
        "moved": {"rows": 768, "cols": 1024, "dtype": "bf16"},
        "gemm": {"m": 512, "n": 64, "k": 1024, "dtype": "bf16"},
        "split": [192, 64, 192, 64],
    }
    assert fits(scenario_of("uneven A2A+GEMM")) == {"ranks": 4, "ops": [op]}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("workload w", "workload v", True),
        ("full_mesh(xgmi)", "ring(xgmi)", True),
        ("amd/mi300x", "amd/mi325x", True),
        ("gpus 4", "gpus 2", False),
        ("bf16[512, 1024]", "bf16[1024, 1024]", False),
        ("bf16", "fp16", False),
    ],
)
def test_only_what_the_plan_depends_on_counts(old: str, new: str, same: bool) -> None:
    text = text_of("AG+GEMM").replace(old, new)
    if "mi325x" in new:
        text = text.replace("MI300X", "MI325X")

    assert (fits(compile_text(text).scenario().case) == fits(scenario_of("AG+GEMM"))) is same
