"""What is said twice or for nothing is refused or warned of, never passed over in silence."""

import json
from pathlib import Path

import pytest

from magus.advisor.policy.reader import Policy, PolicyError
from magus.compiler import compile_text
from magus.compiler.request.request import RequestError, shipped_gpu
from tests.helpers.commands import magus

TEXT = """use "nvidia/h100"
param M = 1024 in 512..4096
system s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on s {
  x = tensor bf16[M, 512] shard rows
  v = tensor bf16[512, 512] shard cols
  y = gemm(all_gather(x), v)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.mgs"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("simulate", "--schedule", "serial", "--schedule", "shard_p2p"), "--schedule is given 2 times"),
        (("simulate", "--set", "M=512", "--set", "M=1024"), "M is given twice"),
        (("sweep", "--set", "M=512,1024", "--set", "M=2048"), "M is given twice"),
        (("advise", "--top", "2", "--top", "3"), "--top is given 2 times"),
        (("plan", "--format", "json", "--format", "mgs"), "--format is given 2 times"),
        (("plan", "--layers", "2"), "--layers belongs to --format json"),
        (("plan", "--layers", "2", "--format", "triton"), "--layers belongs to --format json"),
    ],
)
def test_an_option_is_given_once(file: Path, words: tuple[str, ...], message: str) -> None:
    done = magus(words[0], file, *words[1:])

    assert done.exit_code == 2 and message in " ".join(done.stderr.split())


def test_what_a_block_sets_itself_is_set_for_nothing(file: Path) -> None:
    file.write_text(TEXT + "expect w with M = 512 { serial.makespan > 1 us }\nexpect w { serial.makespan > 1 us }\n")

    done = magus("test", file, "--set", "M=2048", "--no-cache")

    assert done.exit_code == 0
    assert done.stderr.count("MGS214 warning") == 1 and "its block sets M itself" in done.stderr
    assert "MGS214" not in magus("test", file, "--no-cache").stderr


def test_a_file_without_expectations_is_no_success_for_a_script(file: Path) -> None:
    for words, exit_code in (((), 0), (("--strict",), 3)):
        done = magus("test", file, *words)
        assert done.exit_code == exit_code and "nothing was checked" in done.stderr


@pytest.mark.parametrize(
    ("statement", "warned"),
    [
        ("serial.makespan >= 0 us", True),
        ("0 us <= serial.makespan", True),
        ("serial.makespan > -1 us", True),
        ("speedup(best, serial) >= 0", True),
        ("serial.makespan == 1 us +- 100000 %", True),
        ("serial.makespan == 1 us +- 50 %", False),
        ("serial.makespan >= 1 us", False),
        ("serial.makespan <= 0 us", False),
        ("serial.makespan - best.makespan >= 0 us", False),
    ],
)
def test_an_expectation_that_holds_for_any_value_is_warned_of(statement: str, warned: bool) -> None:
    warnings = compile_text(TEXT + f"expect w {{ {statement} }}").warnings

    assert [each.code.name for each in warnings] == ["MGS215"] * warned


def test_magus_test_warns_of_such_an_expectation(tmp_path: Path) -> None:
    file = tmp_path / "any.mgs"
    file.write_text(TEXT + "expect w { serial.makespan >= 0 us }")

    done = magus("test", file)

    assert done.exit_code == 0 and done.stderr.count("MGS215 warning") == 1


@pytest.mark.parametrize(
    "name", ["H100 }", "H100; drop", "my H100", "H100 or H200", "H100\nsystem", "xH100", "NVIDIA H100 fast", "H-100"]
)
def test_the_name_of_a_gpu_matches_whole(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        shipped_gpu(name)
    assert "unknown GPU" in str(caught.value)


@pytest.mark.parametrize("name", ["h100", "NVIDIA H100", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X OAM"])
def test_names_of_drivers_are_known(name: str) -> None:
    assert shipped_gpu(name).name.lower() in name.lower()


def test_a_table_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text('{"schema": "magus-policy/2", "rules": [], "rules": []}')
    with pytest.raises(PolicyError, match="twice"):
        Policy.load(str(path))


def test_a_question_with_a_key_twice_is_refused() -> None:
    questions = pytest.importorskip("magus.tui.service.questions")
    with pytest.raises(RequestError, match="twice"):
        questions.object_of_body(b'{"m": 8, "m": 16}')
    assert questions.object_of_body(json.dumps({"m": 8}).encode()) == {"m": 8}
