"""Requests: what they become, and what is wrong with bad ones."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import DType, EngineKind, GemmShape
from magus.compiler.request.request import (
    COLLECTIVE_PATTERNS,
    INDEPENDENT_PATTERNS,
    KERNEL_PATTERNS,
    Request,
    RequestError,
    shipped_gpu,
)
from magus.compiler.request.scenario import WORKLOAD, request_text, scenario_of, stamp, system_text

AG: dict[str, Any] = {"pattern": "AG+GEMM", "m": 4096, "n": 3584, "k": 8192, "gpu": "H100", "ranks": 8}


@pytest.mark.parametrize("pattern", (*KERNEL_PATTERNS, *INDEPENDENT_PATTERNS), ids=lambda each: each.value)
@pytest.mark.parametrize(("gpu", "ranks"), [("H100", 8), ("MI300X", 4), ("B200", 2)])
def test_m_n_k_are_the_gemm_of_one_rank(pattern: Any, gpu: str, ranks: int) -> None:
    moved = 1 << 20 if pattern in INDEPENDENT_PATTERNS else 0
    request = Request(pattern.value, m=512, n=768, k=256, num_bytes=moved, dtype="fp8", gpu=gpu, ranks=ranks)
    workload = scenario_of(request).case.shape

    assert workload.pattern is pattern
    assert workload.gemm == GemmShape(512, 768, 256, DType.FP8)


@given(st.sampled_from(COLLECTIVE_PATTERNS), st.integers(1, 1 << 20), st.sampled_from([2, 4, 8]))
def test_bytes_are_the_whole_tensor(pattern: Any, units: int, ranks: int) -> None:
    request = Request(pattern.value, num_bytes=units * ranks * 2, gpu="MI300X", ranks=ranks)
    workload = scenario_of(request).case.shape

    assert workload.pattern is pattern
    assert workload.moved is not None and workload.moved.num_bytes == request.num_bytes


def test_limits_are_said_to_the_search() -> None:
    limits: dict[str, Any] = {"schedules": ["shard_p2p"], "engines": ["dma(7)", "sm(16)"], "staging_bytes": 1 << 20}
    explore = scenario_of(Request(**AG, **limits, implementations=("flux",))).case.explore

    assert explore.values("schedules") == ("shard_p2p",)
    assert [engine.kind for engine in explore.values("engine")] == [EngineKind.DMA, EngineKind.SM]
    assert explore.staging_limit_bytes == 1 << 20
    assert [each.name for each in explore.implementations] == ["flux"]


def test_its_text_is_a_file() -> None:
    request = Request(**AG, topology="ring", staging_bytes=1 << 20)

    assert request_text(request, 8, head=system_text(request)) == (
        'mgs 1\n\nuse "nvidia/h100"\n\n'
        "system node { gpus 8 x H100; fabric ring(nvlink) }\n\n"
        "workload request on node {\n"
        "  x = tensor bf16[4096, 8192] shard rows\n"
        "  w = tensor bf16[8192, 28672] shard cols\n"
        "  y = gemm(all_gather(x), w)\n}\n"
        "explore request { staging <= 1048576 B }\n"
    )


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("mi300x", "MI300X"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
    ],
)
def test_gpus_are_known_by_what_drivers_call_them(name: str, gpu: str) -> None:
    assert shipped_gpu(name).name == gpu


@pytest.mark.parametrize(
    ("changed", "code", "field", "hint"),
    [
        ({"pattern": "AG+GEM"}, Code.MGS203, "pattern", "did you mean 'AG+GEMM'?"),
        ({"pattern": None}, Code.MGS203, "pattern", "one of AG+GEMM"),
        ({"dtype": "bf17"}, Code.MGS203, "dtype", "did you mean 'bf16'?"),
        ({"m": float("nan")}, Code.MGS309, "m", ""),
        ({"m": 8192.0}, Code.MGS309, "m", ""),
        ({"m": True}, Code.MGS309, "m", ""),
        ({"m": -8}, Code.MGS307, "m", ""),
        ({"n": 0}, Code.MGS209, "n", ""),
        ({"k": 10**400}, Code.MGS307, "k", ""),
        ({"m": 1 << 39}, Code.MGS307, "m", ""),
        ({"m": 4097}, Code.MGS304, "request", "use 4104"),
        ({"num_bytes": 8}, Code.MGS310, "num_bytes", "leave it out"),
        ({"pattern": "all_reduce", "m": 0, "n": 0, "k": 0, "num_bytes": 1001}, Code.MGS304, "num_bytes", "1008"),
        ({"pattern": "all_reduce"}, Code.MGS310, "m", "leave it out"),
        ({"gpu": "H10"}, Code.MGS203, "gpu", "did you mean 'H100'?"),
        ({"gpu": ""}, Code.MGS209, "gpu", "gpu='H100'"),
        ({"gpu": "NVIDIA H100 PCIe"}, Code.MGS203, "gpu", "system_file"),
        ({"gpu": 100}, Code.MGS310, "gpu", ""),
        ({"ranks": 0}, Code.MGS209, "ranks", ""),
        ({"ranks": 800}, Code.MGS404, "ranks", ""),
        ({"topology": "rign"}, Code.MGS203, "topology", "did you mean 'ring'?"),
        ({"gpu": "MI300X", "topology": "switch"}, Code.MGS203, "topology", "full_mesh"),
        ({"system": 5}, Code.MGS310, "system", ""),
        ({"gpu": "NVIDIA A100-SXM4-40GB"}, Code.MGS203, "gpu", "system_file"),
        ({"system": "node"}, Code.MGS209, "system_file", ""),
        ({"system_file": "node.mgs"}, Code.MGS206, "gpu", "leave one of them out"),
        ({"schedules": "serial"}, Code.MGS310, "schedules", "schedules=('serial',)"),
        ({"schedules": ["serail"]}, Code.MGS505, "schedules", "did you mean 'serial'?"),
        ({"engines": ["dma(7); everything"]}, Code.MGS203, "engines", ""),
        ({"engines": ["sm(1600)"]}, Code.MGS401, "engines", ""),
        ({"implementations": ["x\n}"]}, Code.MGS203, "implementations", ""),
        ({"implementations": ["fluxx"]}, Code.MGS208, "implementations", "flux"),
        ({"staging_bytes": -1}, Code.MGS307, "staging_bytes", ""),
    ],
)
def test_what_is_wrong_is_said(changed: dict[str, Any], code: Code, field: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        scenario_of(Request(**{**AG, **changed}))
    error = caught.value

    assert (error.code, error.field) == (code, field)
    assert hint in error.hint
    assert str(error).startswith(f"{code.name} {field}: ") and len(str(error)) < 400
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            field: st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.text(), max_size=2))
            for field in Request.__dataclass_fields__
        },
    )
)
def test_anything_is_a_request_or_an_error_of_its_own(given_values: dict[str, Any]) -> None:
    try:
        scenario = scenario_of(Request(**{**AG, **given_values})).case
    except RequestError as error:
        assert error.field in (*Request.__dataclass_fields__, "request")
    else:
        assert scenario.shape.gemm is not None


MACHINE = """use "nvidia/h100"
let tp = 4
system big { gpus tp x H100; fabric switch(nvswitch, link=nvlink) }
system small { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
workload request on small { x = tensor bf16[16, 16]; y = gemm(x, x) }
"""


def test_a_system_comes_from_a_file(tmp_path: Any) -> None:
    file = tmp_path / "machine.mgs"
    file.write_text(MACHINE)
    sizes: dict[str, Any] = {"m": 512, "n": 768, "k": 256, "system_file": str(file)}

    assert scenario_of(Request("AG+GEMM", **sizes)).case.num_ranks == 4
    small = scenario_of(Request("AG+GEMM", **sizes, system="small")).case
    assert small.num_ranks == 2
    assert small.shape.gemm == GemmShape(512, 768, 256, DType.BF16)


def test_a_file_that_the_system_file_includes_is_looked_at_too(tmp_path: Any) -> None:
    (tmp_path / "size.mgs").write_text("let tp = 4\n")
    file = tmp_path / "machine.mgs"
    file.write_text(MACHINE.replace("let tp = 4", 'include "size.mgs"'))
    request = Request("GEMM", m=64, n=64, k=64, system_file=str(file))
    before = stamp(request)
    assert scenario_of(request).case.num_ranks == 4 and stamp(request) == before, "the first answer can be found again"
    (tmp_path / "size.mgs").write_text("let tp = 8  # more\n")
    assert scenario_of(request).case.num_ranks == 8


def test_a_path_is_that_of_the_folder_at_the_time(tmp_path: Any, monkeypatch: Any) -> None:
    for ranks in (4, 8):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        (folder / "machine.mgs").write_text(MACHINE.replace("tp = 4", f"tp = {ranks}"))
        monkeypatch.chdir(folder)
        assert scenario_of(Request("GEMM", m=64, n=64, k=64, system_file="machine.mgs")).case.num_ranks == ranks


def test_a_system_file_that_changed_is_read_again(tmp_path: Any) -> None:
    file = tmp_path / "machine.mgs"
    request = Request("GEMM", m=64, n=64, k=64, system_file=str(file))
    file.write_text(MACHINE)
    assert scenario_of(request).case.num_ranks == 4
    file.write_text(MACHINE.replace("tp = 4", "tp = 8 "))
    assert scenario_of(request).case.num_ranks == 8


@pytest.mark.parametrize(
    ("text", "system", "code", "field", "message"),
    [
        (None, "", Code.MGS120, "system_file", "cannot read"),
        (MACHINE.replace("H100;", "H1000;"), "", Code.MGS203, "system_file", "machine.mgs:3: unknown gpu"),
        ("system {", "", Code.MGS103, "system_file", "machine.mgs:1:"),
        ("\0", "", Code.MGS121, "system_file", "zero byte"),
        ("let a = 1", "", Code.MGS203, "system", "is not in machine.mgs"),
        (MACHINE, "bigg", Code.MGS203, "system", "is not in machine.mgs"),
    ],
)
def test_a_bad_system_file(tmp_path: Any, text: str | None, system: str, code: Code, field: str, message: str) -> None:
    file = tmp_path / "machine.mgs"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RequestError) as caught:
        scenario_of(Request("GEMM", m=64, n=64, k=64, system_file=str(file), system=system))

    assert (caught.value.code, caught.value.field) == (code, field)
    assert message in caught.value.message


@pytest.mark.parametrize("pattern", (*KERNEL_PATTERNS, *INDEPENDENT_PATTERNS), ids=lambda each: each.value)
@pytest.mark.parametrize("limits", [{}, {"schedules": ["serial"], "engines": ["dma(7)"], "staging_bytes": 1 << 20}])
def test_sizes_as_parameters_are_the_text_with_numbers(pattern: Any, limits: dict[str, Any]) -> None:
    moved = 1 << 20 if pattern in INDEPENDENT_PATTERNS else 0
    for m, n, k in ((512, 768, 256), (4096, 1024, 8192)):
        request = Request(pattern.value, m=m, n=n, k=k, num_bytes=moved, gpu="H100", ranks=8, **limits)
        read = compile_text(request_text(request, 8, head=system_text(request)), "<request>").scenario(WORKLOAD)

        assert scenario_of(request) == read and repr(scenario_of(request)) == repr(read)
