"""Decorators of kernels: one configuration of autotuning is taken, of several the user picks; others are refused."""

from pathlib import Path

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import Pattern
from magus.compiler.planning.build import ScheduleError
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import RewrittenKernel, rewrite_kernel, tiles_of_kernel
from magus.compiler.targets.kernel_tuning import config_of
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.diagnostics import CompileError, Source
from tests.helpers.commands import magus
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.targets.rewritten import FOLDER

COUNTED = (FOLDER / "counted.py").read_text()
ONE = 'triton.Config({"BM": 64, "BN": 128, "BK": 32}, num_warps=4)'
OTHER = 'triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=8)'
EITHER = f"""
def other():
    rows = [128]
    return [triton.Config({{"BM": m, "BN": 128, "BK": 32}}, num_warps=8) for m in rows]

def get():
    if hip():
        return [{ONE}]
    else:
        return other()
"""
HOOKED = """
def zero(arguments):
    arguments["c"].zero_()

def get(hook=zero):
    return [triton.Config({"BM": 64, "BN": 128, "BK": 32}, pre_hook=hook)]
"""


def tuned(configs: str, before: str = "", more: str = "") -> str:
    return COUNTED.replace("@triton.jit", f'{before}\n@triton.autotune({configs}, key=["M"]{more})\n@triton.jit')


def made(text: str, wanted: str = "") -> RewrittenKernel:
    return rewrite_kernel(Source("kernel.py", text), config_of(wanted) if wanted else None)


@pytest.mark.parametrize(
    ("text", "wanted", "rows"),
    [
        (tuned(f"configs=[{ONE}]"), "", 64),
        (tuned(f"[{ONE}]"), "", 64),
        (tuned(f"configs=[{ONE}, {ONE}]"), "", 64),
        (tuned("configs=LIST", f"LIST = [{ONE}]"), "", 64),
        (tuned("configs=get()", f'def get():\n    """All."""\n    return [{ONE}]\n'), "", 64),
        (tuned(f"configs=[{ONE}, {OTHER}]"), "BM=128", 128),
        (tuned(f"configs=[{ONE}] + LIST", f"LIST = [{OTHER}]"), "num_warps=4", 64),
        (
            tuned("configs=LIST", 'LIST = [triton.Config({"BM": 2**m, "BN": n}) for m in [6, 7] for n in (64, 32)]'),
            "BM=64,BN=32",
            64,
        ),
        (
            tuned(
                "configs=L", "L = [triton.Config(dict(BM=m), s) for m, s in itertools.product([32, 64], range(2, 4))]"
            ),
            "BM=32, num_warps=3",
            32,
        ),
        (tuned("configs=get()", "def get():\n    return A if hip() else B\n"), "BM=256,BN=64", 256),
        (tuned("configs=get()", EITHER), "num_warps=8", 128),
        (tuned("configs=get(None)", HOOKED), "", 64),
        (
            tuned(
                "configs=get()",
                'def get():\n    sizes = [{"BM": 32, "BN": 64}]\n'
                '    return [triton.Config(s | {"waves_per_eu": 2}, num_warps=8) for s in sizes]\n',
            ),
            "",
            32,
        ),
    ],
)
def test_one_configuration_is_taken(text: str, wanted: str, rows: int) -> None:
    found = made(text, wanted)

    assert found.config is not None and found.config.settings["BM"] == rows
    assert "autotune" not in found.text and "Config" not in found.text


@pytest.mark.parametrize(
    ("text", "wanted", "message", "hint"),
    [
        (
            tuned(f"configs=[{ONE}, {OTHER}]"),
            "",
            "2 configurations, and tables",
            "BM=64,BN=128,BK=32,num_warps=4; BM=128",
        ),
        (tuned(f"configs=[{ONE}, {OTHER}]"), "BN=128", "2 configurations fit", "choose one by --config"),
        (tuned(f"configs=[{ONE}, {OTHER}]"), "BM=32", "no configuration has BM=32", "there are: BM=64"),
        (tuned("configs=get()", "def get():\n    return A if hip() else B\n"), "", "not read", "--config"),
        (tuned("configs=LIST", f"LIST = [{ONE}]\nLIST.append({OTHER})"), "", "LIST is not one list", "--config"),
        (tuned("configs=LIST", f"LIST = [{ONE}]\nLIST += [{OTHER}]"), "", "LIST is not one list", "--config"),
        (tuned(f"configs=[{ONE}]", "", ', reset_to_zero=["c"]'), "", "reset_to_zero", "leave reset_to_zero out"),
        (tuned(f"configs=[{ONE[:-1]}, pre_hook=zero)]"), "", "a hook before the kernel", "leave pre_hook out"),
        (tuned("configs=get(zero)", HOOKED), "", "a hook before the kernel", "descriptors of these blocks"),
        (tuned("configs=get()", EITHER), "", "2 configurations, and tables", "BM=64,BN=128,BK=32,num_warps=4; BM=128"),
        (tuned('configs=[triton.Config({"BM": 64, "SPLIT_K": 1})]'), "", "SPLIT_K of the configuration", "constants"),
        (COUNTED, "BM=64", "is not autotuned", "leave --config out"),
        (
            COUNTED.replace(
                "@triton.jit", '@triton.heuristics({"EVEN": lambda args: args["K"] % 2 == 0})\n@triton.jit'
            ),
            "",
            "has the decorator @triton.heuristics",
            "pass EVEN when the kernel is called",
        ),
        (COUNTED.replace("@triton.jit", "@libentry()\n@triton.jit"), "", "has the decorator @libentry", "leave it out"),
        (tuned(f"configs=[{ONE}]", "@mine"), "", "has the decorator @mine", "leave it out"),
    ],
)
def test_other_decorators_are_refused_with_their_own_hint(text: str, wanted: str, message: str, hint: str) -> None:
    with pytest.raises(CompileError) as caught:
        made(text, wanted)

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS542 and message in found.message and hint in found.hint


@pytest.mark.parametrize("test", ["HALF", "not HALF", "HALF == True", "HALF != False"])
def test_a_configuration_decides_branches(test: str) -> None:
    """Of a kernel that stores halves in one of its configurations, the other one is followed."""
    one = "        tl.store(c + rows[:, None] * ldc + cols[None, :], acc, (rows[:, None] < M) & (cols[None, :] < N))"
    halves, whole = "            tl.store(c, halves(acc))", f"    {one}"
    first, second = (whole, halves) if test.startswith("not") else (halves, whole)
    text = COUNTED.replace(one, f"        if {test}:\n{first}\n        else:\n{second}").replace("ORDER:", "HALF:")
    text = text.replace('if ORDER == "rows"', "if BK > 8")
    config = 'triton.Config({"BM": 64, "BN": 128, "HALF": %s})'

    found = made(text.replace("@triton.jit", f"@triton.autotune(configs=[{config % False}], key=[])\n@triton.jit"))

    assert "halves" not in found.text
    with pytest.raises(CompileError, match="no store of a tile is seen"):
        made(text.replace("@triton.jit", f"@triton.autotune(configs=[{config % True}], key=[])\n@triton.jit"))


def test_the_file_launches_with_the_configuration() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 1024, 512, 256)
    schedule = resolve_schedule(scenario, "hetero_fused_1d(chunks=4)")
    text = triton_text(scenario, schedule, kernel=made(tuned(f"configs=[{ONE}]")))

    assert "counted_kernel[(PROGRAMS,)](tiles, starts, waits, flags, epoch, ..., **CONFIG)" in text
    assert 'tables_of(GROUPS[rank], CONFIG["BM"], CONFIG["BN"], PROGRAMS)' in text
    assert "CONFIG = {'BM': 64, 'BN': 128, 'BK': 32, 'num_warps': 4}" in text

    with pytest.raises(ScheduleError, match="tiles of 96 x 128 do not divide"):
        triton_text(scenario, schedule, kernel=made(tuned(f"configs=[{ONE.replace('64', '96')}]")))


def test_the_option_picks_a_configuration(tmp_path: Path) -> None:
    scenario, kernel = tmp_path / "a.mgs", tmp_path / "kernel.py"
    scenario.write_text(
        'use "nvidia/h100"\nsystem s { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on s { x = tensor bf16[1024, 512] shard rows; v = tensor bf16[512, 512]; "
        "y = gemm(all_gather(x), v) }\n"
    )
    kernel.write_text(tuned(f"configs=[{ONE}, {OTHER}]"))
    words = ("plan", scenario, "--format", "triton", "--kernel", kernel)

    assert "choose one by --config" in magus(*words).output
    assert "'BM': 128" in magus(*words, "--config", "BM=128").stdout
    assert magus(*words, "--config", "BM").exit_code == 2
    assert magus("plan", scenario, "--format", "triton", "--config", "BM=128").exit_code == 2
    assert magus("plan", scenario, "--config", "BM=128").exit_code == 2


def test_the_tile_of_a_plan_chooses_the_configuration() -> None:
    text = tuned(f"configs=[{ONE}, {OTHER}]")
    assert tiles_of_kernel(Source("kernel.py", text)) == ((64, 128), (128, 128))

    made_for = rewrite_kernel(Source("kernel.py", text), tile=(128, 128))
    assert made_for.config is not None and made_for.config.settings["BM"] == 128

    with pytest.raises(CompileError) as refused:
        rewrite_kernel(Source("kernel.py", text), tile=(256, 64))
    assert "no configuration has BM=256,BN=64" in str(refused.value)
    assert rewrite_kernel(Source("kernel.py", COUNTED), tile=(64, 64)).config is None, "its blocks are passed"
    with pytest.raises(CompileError, match="are not read"):
        rewrite_kernel(Source("kernel.py", tuned("configs=elsewhere()")), tile=(64, 64))


def doubled(more: str, last: str = "[1]") -> str:
    """Definitions, each of which takes the next one twice."""
    return "\n".join(f"N{each} = {more.format(f'N{each + 1}')}" for each in range(40)) + f"\nN40 = {last}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COUNTED, "has no configurations"),
        (tuned("configs=elsewhere()"), "are not read"),
        (tuned("configs=ONE", "ONE = OTHER\nOTHER = ONE"), "definitions go in circles"),
        (tuned("configs=get()", "def get():\n    return get()"), "functions go in circles"),
        (tuned("configs=N0", doubled("[{0}, {0}]")), "they are no list"),
        (tuned("configs=N0", doubled("{0} + {0}")), "a list of more than 4,096"),
        (tuned("configs=N0", doubled("{0} * {0}", "3")), "a number that is computed"),
        (tuned("configs=[[[1 for a in R] for b in R] for c in R]", "R = range(4096)"), "more than 262,144 values"),
        (tuned("configs=range(10**15)"), "they are no list"),
        (tuned("configs=range(1, 2, 0)"), "must not be zero"),
        (tuned("configs={[1]: 2}"), "unhashable"),
        ("def f(: pass", "no Python"),
    ],
)
def test_a_kernel_whose_tiles_are_not_listed_is_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        tiles_of_kernel(Source("kernel.py", text))


def test_a_file_has_the_tile_of_its_plan() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 512, 512, 512)
    base = "hetero_fused_1d(chunks=4, engine=dma(3), kernel=persistent, tile={})"
    text = triton_text(scenario, resolve_schedule(scenario, base.format([64, 128])))

    assert "BLOCK_M, BLOCK_N = 64, 128  # the tile of the plan" in text
    assert "BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=..." in text
    with pytest.raises(ScheduleError, match="powers of two"):
        triton_text(scenario, resolve_schedule(scenario, base.format([128, 192])))
    kernel = made(tuned(f"configs=[{ONE}, {OTHER}]"), "BM=128")
    with pytest.raises(ScheduleError, match="tiles of 128 x 128, and the plan of 64 x 128"):
        triton_text(scenario, resolve_schedule(scenario, base.format([64, 128])), kernel=kernel)
