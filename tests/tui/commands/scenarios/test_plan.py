"""``magus plan``: what it prints compiles, imports, and simulates to the tick of the schedule it was made from."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import magus
from tests.helpers.mscclpp import programs as mscclpp_programs
from tests.helpers.paths import DOCS
from tests.helpers.targets.rewritten import FOLDER as KERNELS

FILE = """
use "amd/mi300x"
param M = 256 in 8..1024 x2
system quad { gpus 4 x MI300X; fabric full_mesh(xgmi) }
workload up on quad {
  x = tensor bf16[M, 512] shard rows
  w = tensor bf16[512, 1024] shard cols
  y = gemm(all_gather(x), w)
}
workload sum on quad { g = tensor bf16[256, 512]; s = all_reduce(g) }
schedule plan_1 for up = uniform_fused_1d(chunks=16, engine=dma(3))
"""
SCHEDULES = {
    "up": ["plan_1", "serial(engine=sm(8))", "uniform_fused_2d(chunks=8)", "shard_p2p(engine=sm(8), transfer=get)"],
    "sum": ["serial", "double_tree(chunks=8, engine=sm(16))", "ring(engine=sm(8), protocol=ll)"],
}
EACH = [(workload, schedule) for workload, schedules in SCHEDULES.items() for schedule in schedules]


def done(*words: str | Path) -> str:
    found = magus(*words)
    assert found.exit_code == 0, found.stderr
    return found.stdout


def ticks(file: Path, workload: str, schedule: str | Path) -> float:
    text = done("simulate", file, "--workload", workload, "--schedule", schedule, "--json")
    return float(json.loads(text)["makespan_cycles"])


@pytest.mark.quick(2)
@pytest.mark.parametrize(("workload", "schedule"), EACH)
def test_a_plan_takes_as_long_as_its_schedule(file: Path, workload: str, schedule: str) -> None:
    at, out = ("--workload", workload), file.with_name("p.json")
    expected = ticks(file, workload, schedule)

    assert magus("plan", file, *at, "--schedule", schedule, "--format", "json", "-o", out).exit_code == 0
    block = done("plan", file, *at, "--schedule", schedule)
    pasted = file.with_name("pasted.mgs")
    pasted.write_text(FILE + block + f'schedule mine for {workload} = import "p.json"\n')

    name = "plan_2" if workload == "up" else "plan_1"
    assert block.startswith("# ") and f"schedule {name} for {workload} {{" in block
    if workload == "sum":
        pasted.write_text(pasted.read_text().replace("schedule plan_1 for up", "schedule other for up"))
    assert ticks(file, workload, out) == expected
    assert ticks(pasted, workload, "mine") == expected
    assert ticks(pasted, workload, name) == expected


def test_without_a_schedule_it_is_the_first_that_the_file_declares(file: Path) -> None:
    text = done("plan", file, "--format", "json")

    assert json.loads(text)["expression"] == "uniform_fused_1d(chunks=16, engine=dma(3))"
    assert text == done("plan", file, "--format", "json", "--schedule", "plan_1")


def test_settings_reach_the_plan(file: Path) -> None:
    document = json.loads(done("plan", file, "--format", "json", "--set", "M=512"))

    assert document["scenario"]["ops"][0]["moved"]["rows"] == 512


def test_the_schema_is_that_of_the_documents(tmp_path: Path) -> None:
    published = (DOCS / "plan.schema.json").read_text(encoding="utf-8")

    assert done("plan", "--schema") == published
    assert magus("plan", "--schema", "-o", tmp_path / "s.json").exit_code == 0
    assert (tmp_path / "s.json").read_text(encoding="utf-8") == published


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--schedule", "nothing()"], 1),
        (["--schedule", "absent.json"], 1),
        (["--workload", "none"], 1),
        (["--format", "xml"], 2),
        (["--set", "M"], 2),
        (["-o", "/proc/no/such/folder"], 1),
    ],
)
def test_what_is_wrong_is_reported_without_a_traceback(file: Path, words: list[str], code: int) -> None:
    found = magus("plan", file, *words)

    assert found.exit_code == code
    assert "Traceback" not in found.stderr and found.stdout == ""


def test_a_path_that_is_no_plan_says_what_a_schedule_may_be(file: Path) -> None:
    found = magus("plan", file, "--schedule", "/tmp")

    assert found.exit_code == 1
    assert "help: for instance serial(engine=dma), or a plan in a file: plan.json" in found.stderr


def test_a_file_is_needed() -> None:
    assert magus("plan").exit_code == 2


def test_a_plan_for_another_workload_is_refused(file: Path) -> None:
    out = file.with_name("p.json")
    done("plan", file, "--format", "json", "-o", out)

    found = magus("simulate", file, "--workload", "sum", "--schedule", out)

    assert found.exit_code == 1
    assert "MGS524 error: p.json: scenario.ops[0]: pattern: the plan is for" in found.stderr


def test_what_an_execution_plan_leaves_out_is_reported(file: Path) -> None:
    out = file.with_name("m.json")
    out.write_text(json.dumps(mscclpp_programs.all_reduce(4).document()))

    found = magus("plan", file, "--workload", "sum", "--schedule", out)

    assert found.exit_code == 0
    assert "MGS527 warning: m.json: 4 waits that bring no data take no time here" in found.stderr
    assert "  rank 3 {" in found.stdout


def test_a_plan_of_an_older_form_says_what_to_write_instead(file: Path) -> None:
    out = file.with_name("p.json")
    out.write_text('{"schema": "magus-plan/1", "scenario": {"ranks": 4}, "engine": {}, "steps": []}')

    found = magus("simulate", file, "--workload", "up", "--schedule", out)

    assert found.exit_code == 1
    assert "MGS137 error: p.json: schema: magus-plan/1 is an older form of plans, this release reads" in found.stderr
    assert "help: write the plan anew: magus plan FILE --schedule NAME --format json" in found.stderr


@pytest.mark.parametrize("name", ["none/p.json", "."])
def test_what_cannot_be_written_is_named(file: Path, name: str) -> None:
    out = file.parent / name

    found = magus("plan", file, "-o", out)

    assert found.exit_code == 1
    assert found.stderr.startswith(f"magus: {out}: ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "MGS137"),
        ("[]", "MGS137"),
        ("{}", "MGS137"),
        ('{"schema": "magus-plan/1", "scenario": {}, "engine": {}, "steps": []}', "MGS137"),
        ('{"gpus": 3}', "MGS137"),
        ('{"gpus": [{"id": 0}]}', "MGS137"),
        ('{"schema": "magus-plan/2", "scenario": {"ranks": 9}, "plans": NaN}', "MGS137"),
        ('{"a": ' + "[" * 50_000, "MGS132"),
        ('{"a": ' + "1" * 9999 + "}", "MGS133"),
        ('{"a": "\\ud800\x1b[31m", "a": 1}', "MGS137"),
        ("\0", "MGS121"),
    ],
    ids=lambda value: value[:16],
)
def test_a_hostile_file_is_a_diagnostic(file: Path, text: str, code: str) -> None:
    out = file.with_name("p.json")
    out.write_text(text)
    file.write_text(FILE + 'schedule mine for up = import "p.json"\n')

    for found in (magus("check", file), magus("simulate", file, "--schedule", "mine")):
        assert found.exit_code == 1
        assert f"{code} error: " in found.stderr and "Traceback" not in found.stderr
    file.write_text(FILE)
    found = magus("simulate", file, "--schedule", out)
    assert (found.exit_code, found.stdout) == (1, "")
    assert f"{code} error: " in found.stderr and "\x1b" not in found.stderr


def test_a_plan_that_no_file_can_hold_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "big.mgs"
    file.write_text(
        'use "nvidia/gb200"\nsystem s { gpus 32 x GB200; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on s { x = tensor bf16[8192, 4096]; y = all_reduce(x) }\n"
    )
    schedule = ("--schedule", "double_tree(chunks=64, engine=sm(16))")

    assert "use --format json" in magus("plan", file, *schedule).stderr
    assert magus("plan", file, *schedule, "--format", "json").stderr == ""


def test_a_triton_kernel_with_the_tables_of_one_rank(file: Path) -> None:
    out = file.with_name("up.py")
    assert magus("plan", file, "--format", "triton", "--rank", "2", "-o", out).exit_code == 0

    text = out.read_text()
    assert "# schedule:   uniform_fused_1d(chunks=16, engine=dma(3))" in text
    assert "\n    2: (\n        Group(name='g0'" in text and "\n    1: (" not in text
    compile(text, "up.py", "exec")


def test_what_no_triton_kernel_can_say_is_refused_with_what_to_use(file: Path) -> None:
    found = magus("plan", file, "--workload", "sum", "--format", "triton")

    assert found.exit_code == 1
    assert "MGS541 error: sum is all_reduce, and the kernel is one GEMM\n  help: it does AG+GEMM" in found.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rank", "4", "--format", "triton"), "magus: --rank 4: the ranks are 0 to 3"),
        (("--kernel", "k.py", "--format", "json"), "--rank, --kernel and --config belong to --format triton"),
        (("--rank", "1"), "--rank, --kernel and --config belong to --format triton"),
    ],
)
def test_options_of_triton_that_do_not_fit(file: Path, words: tuple[str, ...], message: str) -> None:
    found = magus("plan", file, *words)

    assert found.exit_code == 2 and message in " ".join(found.stderr.split())


def test_a_kernel_of_the_user_is_rewritten(file: Path) -> None:
    text = done("plan", file, "--format", "triton", "--rank", "0", "--kernel", KERNELS / "grouped.py")

    assert "def grouped_gemm_kernel(magus_tiles, " in text and "plan_gemm" not in text
    compile(text, "up.py", "exec")


def test_one_of_several_kernels_is_named_behind_the_file(file: Path) -> None:
    kernels = file.with_name("kernels.py")
    kernels.write_text((KERNELS / "grouped.py").read_text() + (KERNELS / "grid.py").read_text(), encoding="utf-8")
    text = done("plan", file, "--format", "triton", "--rank", "0", "--kernel", f"{kernels}::grid_kernel")

    assert "def grid_kernel(magus_tiles, " in text and "grouped" not in text
    compile(text, "up.py", "exec")


def test_a_kernel_that_is_not_recognised_is_refused_with_its_place(file: Path) -> None:
    kernel = file.with_name("k.py")
    kernel.write_text((KERNELS / "grouped.py").read_text().replace("    tl.assume(pid_m >= 0)\n", "    return\n"))
    found = magus("plan", file, "--format", "triton", "--kernel", kernel)

    assert found.exit_code == 1
    assert "MGS542 error: a tile may end early, and its flag would not be set" in found.stderr
    assert f"{kernel}:" in found.stderr.replace("\n", "") and "help: mask stores instead" in found.stderr


def test_a_kernel_that_cannot_be_read(file: Path) -> None:
    found = magus("plan", file, "--format", "triton", "--kernel", file.with_name("none.py"))

    assert found.exit_code == 1 and "MGS120" in found.stderr


KERNEL = """use "nvidia/h100"
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
kernel k {
  groups 2; chunks 2; put { load 4; store }; get { load 4; store }
  program { for p in 1..ranks - 1 { copy output.shard(0)[self] to p; signal p }; for p in 1..ranks - 1 { wait p } }
}
workload w on s { x = tensor bf16[64, 128] shard rows; y = all_gather(x) }
"""


@pytest.mark.parametrize(
    ("how", "instead"), [("program(k)", "--format mscclpp"), ("serial(engine=sm(k))", "engine=sm(16)")]
)
def test_what_replaces_a_kernel_in_a_plan_fits_its_schedule(tmp_path: Path, how: str, instead: str) -> None:
    file = tmp_path / "k.mgs"
    file.write_text(f"{KERNEL}schedule mine for w = {how}\n")

    found = magus("plan", file, "--format", "json")

    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.endswith(f"help: leave --format out, or say {instead}\n")
