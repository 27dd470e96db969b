"""``calibrate --implementation`` recovers the costs that made synthetic rows, and says what is wrong with others."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from magus.advisor.implementations.offers import offers_of
from magus.advisor.implementations.predict import FUSED_ERROR, predict_us
from magus.advisor.measured.calibrate import implementation_fit
from magus.advisor.measured.calibrate.implementation_run import (
    ImplementationCalibration,
    calibrate_implementation,
    implementation_text,
)
from magus.advisor.measured.calibrate.text import calibration_document, calibration_text
from magus.advisor.measured.tables.csv_rows import MeasuredError
from magus.advisor.measured.tables.exchanges import PATTERN_OF, exchange_rows
from magus.advisor.measured.tables.fused import FusedPart, scenario_on
from magus.advisor.measured.tables.own_rows import MAX_ROWS
from magus.advisor.measured.tables.samples import collective_on
from magus.compiler import CompileError, compile_file, format_text
from magus.compiler.ir import TICKS_PER_US, DType, Implementation, Method, OpCase, Pattern, Rejection
from magus.compiler.resolve.schedules.implementation import shipped_implementations
from tests.helpers.some import some

HEADER = "gpu,n_gpus,op,m,n,k,dtype,serial_us,fused_us"
SIZES = ((512, 512, 512), (512, 2048, 512), (1024, 512, 1024), (1024, 1024, 512), (2048, 512, 512), (2048, 256, 1024))


def made(name: str, pattern: Pattern, change: Mapping[str, Any], gpu: str = "H100") -> list[str]:
    """The rows of an implementation with other numbers, and a little noise."""
    lines = []
    for index, (m, n, k) in enumerate(SIZES):
        scenario = scenario_on(gpu, 4, DType.BF16, FusedPart(pattern, m, n, k))
        shipped = {each.name: each for each in shipped_implementations(scenario.system)}
        method = shipped[name].method(pattern)
        assert method is not None
        times = [us_of(scenario, shipped["torch_nccl"]), us_of(scenario, of(replace(method, missing=(), **change)))]
        times[1] *= 1.001 if index % 2 else 0.999
        lines.append(f"{gpu},4,{pattern.value},{m},{n},{k},bf16,{times[0]:.4f},{times[1]:.4f}")
    return lines


def of(method: Method) -> Implementation:
    return Implementation("one", (), (), (method,))


def us_of(scenario: object, implementation: Implementation) -> float:
    us = predict_us(scenario, implementation)  # type: ignore[arg-type]
    assert not isinstance(us, Rejection)
    return us


def table(folder: Path, lines: Sequence[str], header: str = HEADER, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> ImplementationCalibration:
    """Kraken with copies at half the rate and calls of 90 us."""
    change = {"rate": Fraction(1, 5), "call_ticks": 90 * TICKS_PER_US}
    path = table(tmp_path_factory.mktemp("rows"), made("kraken", Pattern.AG_GEMM, change))
    return calibrate_implementation(path, "kraken")


@pytest.mark.slow
def test_the_costs_that_made_the_rows_are_found(slower: ImplementationCalibration) -> None:
    (part,) = slower.parts
    (errors,) = part.errors
    values = {fitted.constant.name: float(fitted.value) for fitted in part.constants}

    assert (slower.gpus, part.name, part.rows, part.of_rows) == (("H100",), "AG+GEMM", 3, 6)
    assert values["call"] == pytest.approx(90, rel=0.15)
    assert errors.before is not None and errors.after < 5 < errors.before


@pytest.mark.slow
def test_the_call_of_a_framework_s_own_all_reduce_is_found(tmp_path: Path) -> None:
    path = table(tmp_path, made("vllm_all_reduce", Pattern.GEMM_AR, {"call_ticks": 6 * TICKS_PER_US}))

    (part,) = calibrate_implementation(path, "vllm_all_reduce").parts
    (call,) = part.constants
    assert call.constant.name == "call" and float(call.value) == pytest.approx(6, rel=0.1)


def test_what_the_rows_do_not_determine_is_kept_and_said(slower: ImplementationCalibration) -> None:
    determined = {fitted.constant.name for fitted in slower.parts[0].constants}

    assert "step" not in determined
    assert "kept: AG+GEMM step 0 us, the rows do not determine it" in slower.kept
    assert "step" not in implementation_text(slower)


def test_report_document_and_file_say_the_same(slower: ImplementationCalibration) -> None:
    text, document, file = calibration_text(slower), calibration_document(slower), implementation_text(slower)
    errors = slower.parts[0].errors[0]

    assert all(len(line) <= 80 for line in text.splitlines()) and f"{errors.after:.1f}" in text
    assert (document["implementation"], document["profile"]) == ("kraken", file)
    assert (
        document["command"] == "magus calibrate --implementation kraken --data rows.csv" and document["command"] in file
    )
    assert "error 21.0 % @measured" in file and f"mean of speedup is {errors.after:.1f} %" in file
    assert format_text(file) == file


def test_the_file_is_an_implementation_to_ask_about(slower: ImplementationCalibration, tmp_path: Path) -> None:
    (tmp_path / "here.mgs").write_text(implementation_text(slower))
    (tmp_path / "main.mgs").write_text(
        'include "here.mgs"\nuse "nvidia/h100"\nsystem s { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on s {\n  x = tensor bf16[1024, 512] shard rows\n  w = tensor bf16[512, 4096] shard cols\n"
        "  y = gemm(all_gather(x), w)\n}\nexplore w { implementations kraken_calibrated, shipped.kraken }\n"
    )

    scenario = compile_file(tmp_path / "main.mgs").scenario("w")
    found = offers_of(scenario)

    assert found is not None
    us = {offer.name: offer.us for offer in found.offers}
    assert us["kraken_calibrated"] > us["kraken"] + 20
    assert found.offers[-1].promise.error == FUSED_ERROR, "three rows were held out"


@pytest.mark.slow
def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    lines = library_rows(80)
    texts = [
        implementation_text(calibrate_implementation(table(tmp_path, order, SERIAL), "torch_nccl"))
        for order in (lines, lines, lines[::-1])
    ]

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize(
    ("kernels_us", "noise", "limited", "determined"),
    [
        ((50, 80, 120, 200, 300), 0.001, False, {"call": 90}),
        ((50, 80, 120, 200, 300), 0.001, True, {"call": 90}),
        ((5e5, 6e5, 7e5, 8e5, 9e5), 0.2, False, {}),
    ],
)
def test_constants_that_change_no_row_are_left_out_one_by_one(
    kernels_us: Sequence[float],
    noise: float,
    limited: bool,
    determined: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies hide behind kernels: rows speak of the call alone, or of nothing where that is within the noise."""

    def hidden(kernel_us: float, implementation: Implementation) -> float:
        return kernel_us + float(implementation.methods[0].call_ticks) / TICKS_PER_US

    monkeypatch.setattr(implementation_fit, "predict_us", hidden)
    scenario = scenario_on("H100", 4, DType.BF16, FusedPart(Pattern.AG_GEMM, 512, 512, 512))
    (kraken,) = [each for each in shipped_implementations(scenario.system) if each.name == "kraken"]
    start = replace(kraken.methods[0], missing=(), limit_bytes_per_s=10**11 if limited else None)
    row: Any = None
    points = [
        implementation_fit.OwnPoint(row, cast("OpCase", us), start.choice, (us + 90) * (1 + noise * (-1) ** index))
        for index, us in enumerate(kernels_us)
    ]

    found = {one.constant.name: float(one.value) for one in implementation_fit.fit_method(start, points)}

    assert found == pytest.approx(determined, rel=0.05)


SERIAL = "gpu,ranks,pattern,m,n,k,dtype,serial_ms"


def library_rows(call_us: float) -> list[str]:
    """Serial times of the library with a call of ``call_us``."""
    lines = []
    for m, n, k in SIZES:
        scenario = scenario_on("H100", 4, DType.BF16, FusedPart(Pattern.AG_GEMM, m, n, k))
        shipped = {each.name: each for each in shipped_implementations(scenario.system)}
        us = us_of(scenario, shipped["torch_nccl"]) - 30 + call_us
        lines.append(f"H100,4,ag_gemm,{m},{n},{k},bf16,{us / 1000}")
    return lines


@pytest.mark.slow
def test_of_the_library_the_call_is_fitted_to_serial_times(tmp_path: Path) -> None:
    found = calibrate_implementation(table(tmp_path, library_rows(80), SERIAL), "torch_nccl")

    (call,) = found.parts[0].constants
    assert float(call.value) == pytest.approx(80, rel=0.01) and found.parts[0].errors[0].group == "time"


@pytest.mark.slow
def test_groups_of_a_file_are_held_out_whole(tmp_path: Path) -> None:
    lines = [f"{line},{'ab'[index > 2]}" for index, line in enumerate(library_rows(80))]
    found = calibrate_implementation(table(tmp_path, lines, f"{SERIAL},thread"), "torch_nccl")

    assert found.methods[0].by_group and "3 of 6 rows, whole groups" in implementation_text(found)
    few = [f"{line},{'ab'[index > 4]}" for index, line in enumerate(library_rows(80))]
    assert not calibrate_implementation(table(tmp_path, few, f"{SERIAL},thread"), "torch_nccl").methods[0].by_group


def test_a_table_with_one_time_says_whose_it_is(tmp_path: Path) -> None:
    header = "gpu,n_gpus,op,m,n,k,shape_semantics,dtype,impl,time_ms,source,notes"
    lines = []
    for line in library_rows(80):
        gpu, ranks, _, m, n, k, dtype, ms = line.split(",")
        lines.append(f'{gpu},{ranks},AG+GEMM,{m},{n},{k},"M global, N local",{dtype},torch+nccl,{ms},here,')
        lines.append(f'{gpu},{ranks},AG+GEMM,{m},{n},{k},"M global, N local",{dtype},another,{ms},here,')

    found = calibrate_implementation(table(tmp_path, lines, header), "torch_nccl")

    assert found.parts[0].of_rows == len(SIZES)


def test_worse_constants_do_not_replace_those_that_ship(tmp_path: Path) -> None:
    codes = reported(table(tmp_path, library_rows(30), SERIAL), "torch_nccl")

    assert codes == ["MGS532"]


def reported(path: Path, name: str) -> list[str]:
    """The codes of what is wrong, each with its place."""
    with pytest.raises(CompileError) as caught:
        calibrate_implementation(path, name)
    assert all(each.span.source.path in (str(path), "--implementation") for each in some(caught.value.diagnostics))
    return [each.code.name for each in caught.value.diagnostics]


GOOD = "H100,4,AG+GEMM,1024,512,512,bf16,100,90"


@pytest.mark.parametrize(
    ("header", "lines", "codes"),
    [
        (HEADER.replace("fused_us", "fused"), [GOOD], ["MGS301"]),
        (HEADER.replace("fused_us", "fused_min"), [GOOD], ["MGS302"]),
        (HEADER + ",fused_ms", [GOOD + ",1"], ["MGS206"]),
        (HEADER.replace("n_gpus", "number"), [GOOD], ["MGS209"]),
        (HEADER.replace("fused_us", "other"), [GOOD], ["MGS209"]),
        (HEADER, [GOOD, GOOD], ["MGS206"]),
        *((HEADER, [GOOD.replace(",90", f",{bad}")], ["MGS307"]) for bad in ("0", "-1", "nan", "inf", "x", "")),
        (HEADER, [GOOD.replace(",90", ",90 us")], ["MGS303"]),
        (HEADER, [GOOD.replace(",90", ",0.09")], ["MGS303"]),
        (HEADER, [GOOD.replace("1024", "1024.5")], ["MGS309"]),
        (HEADER, [GOOD.replace("1024", "9999999")], ["MGS307"]),
        (HEADER, [GOOD.replace(",4,", ",1,")], ["MGS307"]),
        (HEADER, [GOOD + ",1"], ["MGS116"]),
        (HEADER, [GOOD + "\x1b"], ["MGS121"]),
        (HEADER, [], ["MGS531"]),
        (HEADER, [GOOD], ["MGS531"]),
        (HEADER, [GOOD.replace("H100", "H10")], ["MGS531", "MGS203"]),
        (HEADER, [GOOD.replace("AG+GEMM", "AG+GEM")], ["MGS531", "MGS204"]),
        (HEADER, [GOOD.replace("AG+GEMM", "GEMM+RS")], ["MGS531", "MGS530"]),
        (HEADER, [GOOD.replace("bf16", "fp8")], ["MGS531", "MGS530"]),
        (HEADER, [GOOD.replace("bf16", "bf17")], ["MGS531", "MGS204"]),
        (HEADER, [GOOD.replace(",100,90", ",100000000,90000000")], ["MGS531", "MGS303"]),
        (HEADER, [GOOD.replace(",1024,512,512", ",8192,8192,8192")], ["MGS531", "MGS303"]),
        (HEADER, [GOOD.replace("1024", "1022")], ["MGS531", "MGS304"]),
        (f"{HEADER},shape_semantics", [f"{GOOD},who knows"], ["MGS531", "MGS310"]),
    ],
)
def test_bad_rows_are_reported_at_their_place(tmp_path: Path, header: str, lines: list[str], codes: list[str]) -> None:
    assert sorted(reported(table(tmp_path, lines, header), "kraken")) == sorted(codes)


def test_all_wrong_rows_are_reported_with_a_hint(tmp_path: Path) -> None:
    lines = [GOOD.replace("H100", "H10"), GOOD.replace("bf16", "fp8"), GOOD.replace("AG+GEMM", "GEMM+AR")]

    with pytest.raises(CompileError) as caught:
        calibrate_implementation(table(tmp_path, lines), "kraken")

    hints = {each.span.location.line: each.hint for each in caught.value.diagnostics}
    assert hints[2] == "did you mean 'H100'?" and hints[3] == "it does bf16, fp16" and hints[4] == "it does AG+GEMM"


def test_a_table_without_the_implementation_says_which_it_has(tmp_path: Path) -> None:
    lines = [f"H100,4,AG+GEMM,1024,512,512,bf16,{impl},{us}" for impl, us in (("torch+nccl", 90), ("superfuse", 80))]
    path = table(tmp_path, lines, "gpu,n_gpus,op,m,n,k,dtype,impl,time_us")

    with pytest.raises(CompileError) as caught:
        calibrate_implementation(path, "kraken")

    (unknown,) = [each for each in caught.value.diagnostics if each.code.name == "MGS203"]
    assert (unknown.message, unknown.hint) == ("no row is of kraken", "those are torch+nccl, superfuse")
    assert unknown.span.location.line == 2


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    many = [GOOD.replace("1024", str(16 * size)) for size in range(1, MAX_ROWS + 2)]

    assert reported(tmp_path / "none.csv", "kraken") == ["MGS120"] and reported(tmp_path, "kraken") == ["MGS120"]
    assert reported(tmp_path / "empty.csv", "kraken") == ["MGS122"]
    assert reported(table(tmp_path, many), "kraken") == ["MGS305"]
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress("\n".join([HEADER, *many[:500]]).encode())[:-400])
    assert reported(tmp_path / "cut.csv.gz", "kraken") == ["MGS120"]


def test_a_file_of_hundreds_of_megabytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magus.advisor.measured.tables.csv_rows.MAX_FILE_BYTES", 1 << 10)

    assert reported(table(tmp_path, ["x" * 70] * 100), "kraken") == ["MGS130"]


def test_an_unknown_implementation(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        calibrate_implementation(table(tmp_path, [GOOD]), "krakn")

    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code.name, diagnostic.hint) == ("MGS203", "did you mean 'kraken'?")


def test_rows_that_are_left_out_are_named_beside_the_result(tmp_path: Path) -> None:
    lines = [*library_rows(80), "L20,4,ag_gemm,512,512,512,bf16,0.1"]
    found = calibrate_implementation(table(tmp_path, lines, SERIAL), "torch_nccl")

    (left_out,) = found.left_out
    assert left_out.startswith("rows.csv:8: there is no profile of the GPU 'L20'")
    assert "Not used:" in calibration_text(found)


def test_costs_that_do_not_ship_are_assumed_if_the_rows_do_not_determine_them(tmp_path: Path) -> None:
    change = {"rate": Fraction(1), "call_ticks": 90 * TICKS_PER_US, "step_ticks": 0}
    found = calibrate_implementation(
        table(tmp_path, made("triton_distributed", Pattern.AG_GEMM, change)), "triton_distributed"
    )

    assert found.parts[0].errors[0].before is None and found.methods[0].assumed
    text = implementation_text(found)
    assert 'step 5 us @assumed "the rows of rows.csv do not determine it"' in text and "not known before" in text


def test_a_table_of_nccl_tests_is_reported_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        calibrate_implementation(
            table(tmp_path, ["H100,8,all_reduce,half,1024,9"], "gpu,n_gpus,op,dtype,bytes,time_us"), "mori"
        )

    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code.name == "MGS209" and "--gpu" in diagnostic.hint


@pytest.mark.slow
def test_amd_has_a_full_mesh_and_no_library_to_compare_with(tmp_path: Path) -> None:
    lines = [
        f"MI355X,8,GEMM+AR,{m},1024,1024,bf16,,{us}" for m, us in ((1024, 190), (2048, 230), (4096, 330), (8192, 560))
    ]
    found = calibrate_implementation(table(tmp_path, lines), "mori")

    assert found.gpus == ("MI355X",) and found.parts[0].errors[0].group == "time"


def exchanges(folder: Path, factor: float) -> Path:
    """Rows of an exchange whose kernels take ``factor`` times as long as those that ship."""
    shipped = {each.name: each for each in shipped_implementations(collective_on("H100", 8).system)}
    header = "gpu,n_nodes,n_gpus,hidden,tokens_per_rank,topk,experts,dispatch_us,combine_us"
    rows = [f"H100,1,8,{hidden},{1 << power},8,256" for hidden in (2048, 7168) for power in range(8)]
    path = table(folder, [f"{row},1,1" for row in rows], header, "deepep_low_latency.csv")
    times: dict[str, list[float]] = {"dispatch": [], "combine": []}
    for row in exchange_rows([path]):
        assert not isinstance(row, str)
        method = shipped["deepep_low_latency"].method(PATTERN_OF[row.phase])
        assert method is not None and method.routed is not None
        times[row.phase].append(factor * row.us(method.routed))
    lines = [f"{row},{one},{other}" for row, one, other in zip(rows, times["dispatch"], times["combine"], strict=True)]
    return table(folder, lines, header, "deepep_low_latency.csv")


def test_the_costs_of_an_exchange_are_found(tmp_path: Path) -> None:
    found = calibrate_implementation(exchanges(tmp_path, 1.4), "deepep_low_latency")

    assert [each.pattern for each in found.methods] == [Pattern.A2A_GEMM, Pattern.GEMM_A2A]
    for part in found.parts:
        (errors,) = part.errors
        assert errors.before == pytest.approx(100 * (1 - 1 / 1.4), rel=0.01) and errors.after < 2
    text = implementation_text(found)
    assert format_text(text) == text and "exchange_bandwidth" in text and "8 of 16 rows, every second one" in text
    (tmp_path / "own.mgs").write_text(text)
    compile_file(tmp_path / "own.mgs")


def test_exchanges_that_are_none_are_refused(tmp_path: Path) -> None:
    path = exchanges(tmp_path, 1.0)
    with pytest.raises(MeasuredError, match=r"kept: A2A\+GEMM, .*off the held-out rows"):
        calibrate_implementation(path, "deepep_low_latency")
    with pytest.raises(MeasuredError, match="0 rows to fit 4 constants"):
        calibrate_implementation(path, "trtllm_alltoall")
    path.write_text("\n".join([*path.read_text().splitlines()[:5], "H100,1,8,7168,1,8,256,0.01,0.02"]) + "\n")
    with pytest.raises(MeasuredError, match=r"0\.01 us is no time of a dispatch, as in another unit"):
        calibrate_implementation(path, "deepep_low_latency")
