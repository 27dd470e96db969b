"""The kernel of ``magus plan --format triton`` compiled ahead of time, without a GPU, for those that people have."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from magus.compiler.ir import Pattern
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import rewrite_kernel
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.diagnostics import Source
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.targets.rewritten import FOLDER

TARGETS = {
    "cuda 80 32": ("cubin", "mma.sync", "cp.async"),
    "cuda 90 32": ("cubin", "wgmma", "cp.async"),
    "cuda 100 32": ("cubin", "tcgen05", "cp.async"),
    "hip gfx942 64": ("hsaco", "v_mfma", "global_load_dwordx4"),
    "hip gfx950 64": ("hsaco", "v_mfma", "global_load_dwordx4"),
}
"""Binary, matrix instruction, and loads of vectors."""
FENCES = {
    "cuda": ("ld.global.sys.acquire", ".global.sys.release.add", "bar.sync"),  # red before Triton 3.8, then atom
    "hip": ("buffer_inv sc0 sc1", "buffer_wbl2 sc0 sc1", "s_barrier"),
}


def compiled(path: Path, kernel: str, target: str, constants: Mapping[str, object]) -> dict[str, object]:
    """What Triton makes of a kernel, in a process without the interpreter: sizes of binaries, and the assembly."""
    program = Path(__file__).parents[2] / "helpers" / "targets" / "compile_kernel.py"
    words = [sys.executable, str(program), str(path), kernel, target, json.dumps(constants)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("expression", ["hetero_fused_1d(chunks=8)", "uniform_fused_2d(chunks=8)"])
def test_the_kernel_compiles_to_vector_loads_and_fences(target: str, expression: str, tmp_path: Path) -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 512, 512, 512)
    path, schedule = tmp_path / "plan.py", resolve_schedule(scenario, expression)
    path.write_text(triton_text(scenario, schedule), encoding="utf-8")
    sliced = "2d" in expression
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SLICED": sliced, "ALIGNED": 16}

    found = compiled(path, "plan_gemm", target, blocks)

    binary, *instructions = TARGETS[target]
    assert binary in found["binaries"]  # type: ignore[operator]
    for instruction in (*instructions, *FENCES[target.split()[0]]):
        assert instruction in str(found["assembly"]), instruction


@pytest.mark.parametrize("target", ["cuda 90 32", "hip gfx942 64"])
def test_a_rewritten_kernel_compiles(target: str, tmp_path: Path) -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 512, 512, 512)
    path, schedule = tmp_path / "plan.py", resolve_schedule(scenario, "hetero_fused_1d(chunks=8)")
    kernel = rewrite_kernel(Source("persistent.py", (FOLDER / "persistent.py").read_text()))
    path.write_text(triton_text(scenario, schedule, kernel=kernel), encoding="utf-8")

    found = compiled(path, kernel.name, target, {"BM": 128, "BN": 128, "BK": 64, "GROUP_M": 8, "NUM_SMS": 132})

    for instruction in (TARGETS[target][1], *FENCES[target.split()[0]]):
        assert instruction in str(found["assembly"]), instruction


@pytest.mark.parametrize("target", ["cuda 80 32", "cuda 90 32", "cuda 100 32", "hip gfx942 64"])
def test_loads_by_descriptor_come_after_the_flags_and_stores_before(target: str, tmp_path: Path) -> None:
    scenario = scenario_of(Pattern.GEMM_RS, SYSTEMS[0], 4, 512, 512, 512)
    path, schedule = tmp_path / "plan.py", resolve_schedule(scenario, "hetero_fused_1d(chunks=8)")
    kernel = rewrite_kernel(Source("described.py", (FOLDER / "described.py").read_text()))
    path.write_text(triton_text(scenario, schedule, kernel=kernel), encoding="utf-8")

    text = str(
        compiled(path, kernel.name, target, {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "SMS": 132})["assembly"]
    )

    steps = [line for line in text.splitlines() if "fence.proxy.async.global" in line]
    assert len(steps) == (2 if target in ("cuda 90 32", "cuda 100 32") else 0)
    if steps:
        flag, load = text.index("sys.acquire"), text.index("cp.async.bulk.tensor.2d.shared")
        store, count = text.index("cp.async.bulk.tensor.2d.global"), text.index(".global.sys.release.add")
        first, second = text.index(steps[0]), text.rindex(steps[1])
        assert flag < first < load < store < second < count
