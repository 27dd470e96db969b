"""``calibrate`` recovers the constants that made synthetic tables, says what it kept, and writes what it found."""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from magus.advisor.measured.calibrate.fitting import Constant
from magus.advisor.measured.calibrate.parts import (
    ALL,
    CONSTANTS,
    DMA,
    EXCHANGE,
    LARGE,
    NVLS,
    RING,
    RING_SWITCH,
    SM_COPY,
    FittedRow,
    parted,
)
from magus.advisor.measured.calibrate.run import PARTS, Calibration, FitRequest, calibrate, profile_text
from magus.advisor.measured.calibrate.text import calibration_document, calibration_text
from magus.advisor.measured.tables.csv_rows import MeasuredError
from magus.advisor.measured.tables.gemm import profile_of
from magus.compiler import compile_text, format_text
from magus.compiler.ir import TICKS_PER_US, TYPES_WITH_CONSTANTS, DType, GemmShape, Gpu
from magus.simcore.kernels.copy import CopyPhase, dma_copy_time, sm_copy_rate
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.kernels.nccl import NcclCollective, collective_time

DATA = os.environ.get("MAGUS_MEASURED_DATA", "")
SYSTEM = """
link none {{ bandwidth 1 GB/s; achieved 1 GB/s; latency 1 ns }}
system one {{ gpus 1 x {gpu}; fabric full_mesh(none) }}
workload lone on one {{ x = tensor bf16[64, 64]; y = gemm(x, x) }}
"""


def shipped(name: str) -> Gpu:
    gpu = profile_of(name)
    assert gpu is not None
    return gpu


def changed(gpu: Gpu, constants: Sequence[Constant], factors: Sequence[float]) -> Gpu:
    """The profile with constants multiplied by factors, which repeat."""
    for index, constant in enumerate(constants):
        gpu = constant.put(gpu, Fraction(constant.of(gpu) * factors[index % len(factors)]))
    return gpu


def gemm_table(folder: Path, gpu: Gpu, count: int, *more: str) -> None:
    rng = random.Random(5)
    sizes = (64, 96, 128, 512, 768, 1024, 1536, 2048, 4096, 8192)
    lines = ["gpu,m,n,k,dtype,time_us"]
    for _ in range(count):
        m, n, k = rng.choice((1, 16, *sizes)), rng.choice(sizes), rng.choice((*sizes, 16384))
        us = gemm_work(gpu, GemmShape(m, n, k, DType.BF16), gpu.sms).alone_ticks / TICKS_PER_US
        lines.append(f"H100-SXM,{m},{n},{k},bf16,{us}")
    (folder / "gemm_h100.csv").write_text("\n".join([*lines, *more]))


def collective_table(folder: Path, gpu: Gpu) -> None:
    lines = ["gpu,n_gpus,op,dtype,bytes,time_us"]
    for operation in NcclCollective:
        for ranks in (2, 4, 8):
            for power in range(9, 30):
                us = collective_time(gpu, operation, 1 << power, ranks).us
                lines.append(f"H100-SXM,{ranks},{operation.value},half,{1 << power},{us}")
    (folder / "nccl_collectives_h100.csv").write_text("\n".join(lines))


def largest_error(found: Calibration, part: str) -> float:
    fitted = found.part(part)
    assert fitted is not None
    return max(each.after for each in fitted.errors)


def compiled(found: Calibration) -> Gpu:
    """The GPU of the file that is written."""
    return compile_text(profile_text(found) + SYSTEM.format(gpu=found.request.gpu)).scenario().case.gpu


@pytest.mark.slow
def test_gemm_constants_are_recovered(tmp_path: Path) -> None:
    truth = changed(shipped("H100"), CONSTANTS[:-1], (1.3, 0.8, 0.9, 1.2, 0.75, 1.4, 0.9, 0.85))
    gemm_table(tmp_path, truth, 700)

    found = calibrate(tmp_path, FitRequest("H100", sample=300))

    assert largest_error(found, "gemm") < 1
    gemm = found.part("gemm")
    assert gemm is not None and max(each.before or 0 for each in gemm.errors) > 10
    for fitted in gemm.constants:
        if not fitted.weak and not fitted.constant.plain:
            assert float(fitted.value) == pytest.approx(fitted.constant.of(truth), rel=0.1), fitted.constant.path
    assert sum(not fitted.weak for fitted in gemm.constants) >= 7


@pytest.mark.slow
def test_collective_constants_are_recovered(tmp_path: Path) -> None:
    truth = changed(shipped("H100"), (*RING, *EXCHANGE, *NVLS), (1.2, 0.85, 1.1))
    collective_table(tmp_path, truth)

    found = calibrate(tmp_path, FitRequest("H100"))

    assert [part.name for part in found.parts] == ["rings", "all_to_all", "NVLS"]
    assert all(largest_error(found, part) < 2 for part in ("rings", "all_to_all", "NVLS"))
    none = [each for each in PARTS if each not in ("rings", "all_to_all", "NVLS")]
    assert found.kept == (f"kept: {', '.join(none)}, no rows",)
    assert found.gpu.collectives is not None and truth.collectives is not None
    assert found.gpu.collectives.simple_from_bytes == truth.collectives.simple_from_bytes


@pytest.mark.slow
def test_the_size_of_the_switch_is_found_if_requested_for(tmp_path: Path) -> None:
    truth = RING_SWITCH.put(shipped("H100"), Fraction(4 << 20))
    collective_table(tmp_path, truth)

    found = calibrate(tmp_path, FitRequest("H100", fit_switch=True))

    assert found.gpu.collectives is not None and found.gpu.collectives.simple_from_bytes == 4 << 20
    assert "simple_from 4 MiB" in profile_text(found)
    assert compiled(found).collectives == replace(
        found.gpu.collectives,
        error=compiled(found).collectives.error,  # type: ignore[union-attr]
    )


def test_copies_by_sms_are_recovered(tmp_path: Path) -> None:
    truth = changed(shipped("H100"), SM_COPY[:2], (0.8, 0.9))
    lines = ["gpu,n_gpus,n_nodes,hidden,tokens_per_rank,topk,num_experts,combine_sms,combine_us"]
    for sms in (4, 8, 12, 16, 20, 24):
        for tokens in (32768, 65536, 131072):
            remote = tokens * 7 * 7168 * 2  # top-8 of 8 experts: every token goes to all 7 peers, in bf16
            lines.append(f"H100,8,1,7168,{tokens},8,8,{sms},{remote / sm_copy_rate(truth, sms) * 1e6}")
    (tmp_path / "deepep_h100.csv").write_text("\n".join(lines))

    found = calibrate(tmp_path, FitRequest("H100"))
    copies = found.part("SM copy")

    assert copies is not None and largest_error(found, "SM copy") < 1
    assert [float(each.value) for each in copies.constants[:2]] == pytest.approx(
        [constant.of(truth) for constant in SM_COPY[:2]], rel=0.05
    )
    assert compiled(found).sm_copy == found.gpu.sm_copy


def test_phases_of_dma_copies_are_recovered(tmp_path: Path) -> None:
    truth = changed(shipped("MI300X"), DMA, (1.5, 0.7, 1.2, 0.9))
    phases = [phase for phase in CopyPhase if phase is not CopyPhase.SETUP]
    lines = ["size_bytes," + ",".join(f"{phase.value}_pct" for phase in phases)]
    for power in range(10, 24):
        time = dma_copy_time(truth, 1 << power)
        lines.append(f"{1 << power}," + ",".join(str(100 * time.share(phase)) for phase in phases))
    (tmp_path / "mi300x_dma_copy_phases.csv").write_text("\n".join(lines))

    found = calibrate(tmp_path, FitRequest("MI300X"))

    assert largest_error(found, "DMA phase share") < 2
    assert compiled(found).dma == found.gpu.dma


def test_what_is_written_compiles_to_what_was_fitted_and_is_canonical(tmp_path: Path) -> None:
    gemm_table(tmp_path, changed(shipped("H100"), CONSTANTS[:-1], (1.1, 0.9)), 200)
    collective_table(tmp_path, shipped("H100"))
    found = calibrate(tmp_path, FitRequest("H100", sample=60, seed=4))
    text, gpu = profile_text(found), compiled(found)

    assert format_text(text) == text
    written, plain = (each.gemm.with_types(dict.fromkeys(TYPES_WITH_CONSTANTS)) for each in (gpu, found.gpu))
    assert replace(written, error=plain.error, validated=True) == plain
    assert gpu.gemm.validated and gpu.gemm.error < Fraction(5, 100)
    assert gpu.collectives is not None and found.gpu.collectives is not None
    assert replace(gpu.collectives, error=found.gpu.collectives.error) == found.gpu.collectives
    assert '"gemm_h100.csv: 60 of ' in text and "seed 4" in text


def test_what_the_rows_do_not_determine_is_assumed(tmp_path: Path) -> None:
    truth = shipped("H100")
    lines = ["gpu,m,n,k,dtype,time_us"]
    for index in range(60):  # too large for any split of k, and for the start to matter
        m, n, k = 4096 + 128 * index, 8192, 4096
        us = gemm_work(truth, GemmShape(m, n, k, DType.BF16), truth.sms).alone_ticks / TICKS_PER_US
        lines.append(f"H100,{m},{n},{k},bf16,{us}")
    (tmp_path / "gemm_h100.csv").write_text("\n".join(lines))

    found = calibrate(tmp_path, FitRequest("H100"))

    assert 'split 2.457 us @assumed "hardly determined by gemm_h100.csv: 48 of 48 rows, seed 0"' in profile_text(found)
    assert "! gemm.split is hardly determined: standard error above 1000%" in calibration_text(found)


@pytest.mark.slow
def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    gemm_table(tmp_path, shipped("B200"), 150)

    texts = [profile_text(calibrate(tmp_path, FitRequest("H100", sample=40, seed=seed))) for seed in (1, 1, 2)]

    assert texts[0] == texts[1] != texts[2]


def test_a_gpu_without_a_profile_starts_from_a_sibling(tmp_path: Path) -> None:
    gemm_table(tmp_path, shipped("H100"), 150)
    table = tmp_path / "gemm_h100.csv"
    table.write_text(table.read_text().replace("H100-SXM", "Z9000"))

    found = calibrate(tmp_path, FitRequest("Z9000", "H100", sample=60))

    assert "gpu Z9000 extends nvidia.H100" in profile_text(found)
    assert compiled(found).gemm.start_ticks == found.gpu.gemm.start_ticks
    with pytest.raises(MeasuredError, match="no profile of Z9000; name a sibling"):
        calibrate(tmp_path, FitRequest("Z9000"))


def test_constants_of_a_sibling_are_the_start_on_the_own_data_sheet(tmp_path: Path) -> None:
    gemm_table(tmp_path, shipped("H100"), 400)

    found = calibrate(tmp_path, FitRequest("H100", "B200", sample=200))
    gemm = found.part("gemm")

    assert gemm is not None and gemm.constants[0].before == pytest.approx(shipped("B200").gemm.start_ticks / 1e8)
    assert found.gpu.hbm == shipped("H100").hbm and largest_error(found, "gemm") < 1.5


def test_malformed_rows_are_named_and_other_gpus_passed_over(tmp_path: Path) -> None:
    gemm_table(
        tmp_path,
        shipped("H100"),
        60,
        "H100,512,512",
        "H100,512,512,512,fp8,4",
        "A100,64,64,64,bf16,9",
        "H100,64,64,4096,bf16,1e-300",
    )

    found = calibrate(tmp_path, FitRequest("H100"))

    assert "gemm_h100.csv:62: 3 fields where there are 6 columns" in found.left_out
    assert (
        "gemm_h100.csv: 1 row: fp8 with the cast of the input in it, which no table of quantize*.csv has"
        in found.left_out
    )
    wrong = [
        reason for reason in found.left_out if reason.startswith("gemm_h100.csv: gemm 64 x 64 x 4096 in 1e-300 us")
    ]
    assert wrong and wrong[0].endswith(
        "and 0 more: more than 100 times as long or short as predicted, as in another unit"
    )
    assert not any("A100" in reason for reason in found.left_out)
    assert max(map(len, calibration_text(found).splitlines())) <= 80
    assert calibration_document(found)["left_out_count"] == len(found.left_out)


def test_too_few_rows_and_none_at_all_are_errors(tmp_path: Path) -> None:
    gemm_table(tmp_path, shipped("H100"), 6)

    with pytest.raises(MeasuredError, match=r"too few rows of H100: kept: gemm, \d rows to fit 9 constants"):
        calibrate(tmp_path, FitRequest("H100"))
    with pytest.raises(MeasuredError, match="no rows of A100"):
        calibrate(tmp_path, FitRequest("A100"))


def test_rows_that_the_profile_has_no_model_of_are_left_out(tmp_path: Path) -> None:
    collective_table(tmp_path, shipped("H100"))
    table = tmp_path / "nccl_collectives_h100.csv"
    table.write_text(table.read_text().replace("half", "int8"))

    with pytest.raises(MeasuredError, match=r"no rows of H100.*half precision"):
        calibrate(tmp_path, FitRequest("H100"))


def test_a_part_that_the_sibling_does_not_have_is_kept(tmp_path: Path) -> None:
    gemm_table(tmp_path, shipped("H100"), 60)
    collective_table(tmp_path, shipped("H100"))

    found = calibrate(tmp_path, FitRequest("H100", "MI300X", sample=40))

    own = shipped("H100").collectives
    assert [part.name for part in found.parts] == ["gemm", "rings", "all_to_all"]
    assert "kept: NVLS, the profile of MI300X has none to start from" in found.kept
    assert found.gpu.collectives is not None and own is not None and found.gpu.collectives.nvls == own.nvls


def test_the_held_out_fifth_does_not_depend_on_the_sample_and_is_never_fitted() -> None:
    rows = [FittedRow(LARGE if index % 3 else ALL, (index,), 1.0, "t", first=bool(index % 3)) for index in range(100)]
    (small, held), (large, again) = parted(rows, 20, 0), parted(list(reversed(rows)), 1000, 0)

    assert held == again and len(held) == 20
    assert len(small) == 20 and set(small) < set(large) and set(large) == set(rows) - set(held)
    assert sum(row.first for row in small) >= 16


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="MAGUS_MEASURED_DATA names no folder")
@pytest.mark.parametrize(("gpu", "start", "limit"), [("A100", "", 6.5), ("H100", "B200", 7.5), ("B200", "", 6.8)])
def test_three_hundred_measured_shapes_are_enough(gpu: str, start: str, limit: float) -> None:
    found = calibrate(Path(DATA), FitRequest(gpu, start))
    gemm = found.part("gemm")

    assert gemm is not None
    assert next(each.after for each in gemm.errors if each.group == f"{gemm.name}, {LARGE}") < limit
