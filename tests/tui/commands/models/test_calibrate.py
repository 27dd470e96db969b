"""``magus calibrate``: its report, its file, its document, and what it says of bad input."""

import json
import random
from pathlib import Path

import pytest

from magus.advisor.measured.tables.gemm import profile_of
from magus.compiler.ir import TICKS_PER_US, DType, GemmShape
from magus.simcore.kernels.gemm import gemm_work
from tests.helpers.commands import magus


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Sixty GEMMs that take 1.2 times what the profile of H100 says."""
    gpu, rng = profile_of("H100"), random.Random(2)
    assert gpu is not None
    lines = ["gpu,m,n,k,dtype,time_us"]
    for _ in range(60):
        m, n, k = (rng.choice((64, 512, 1024, 2048, 4096)) for _ in "mnk")
        us = gemm_work(gpu, GemmShape(m, n, k, DType.BF16), 132).alone_ticks / TICKS_PER_US
        lines.append(f"H100,{m},{n},{k},bf16,{1.2 * us}")
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "gemm_h100.csv").write_text("\n".join(lines))
    return folder


def test_calibrate_reports_and_writes_a_profile_that_checks(measured: Path, tmp_path: Path) -> None:
    file = tmp_path / "h100.mgs"

    done = magus("calibrate", "--data", measured, "--gpu", "h100", "--write", file)

    assert done.exit_code == 0 and f"{file}: what was fitted" in done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith("H100, constants fitted to measured times") and "rings, all_to_all, NVLS, SM copy," in text
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert magus("check", file).exit_code == 0 and magus("fmt", "--check", file).exit_code == 0
    assert "gpu H100 extends nvidia.H100 {" in file.read_text()


def test_without_a_file_the_profile_is_printed(measured: Path) -> None:
    done = magus("calibrate", "--data", measured, "--gpu", "H100")

    assert done.exit_code == 0 and "\nmgs 1\n" in done.stdout


def test_calibrate_prints_one_document(measured: Path) -> None:
    done = magus("calibrate", "--data", measured, "--gpu", "H100", "--from", "B200", "--seed", "3", "--json")

    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"]) == (0, "magus-calibrate/1")
    assert document["command"] == "magus calibrate --gpu H100 --from B200 --sample 300 --seed 3"
    (part,) = document["parts"]
    assert part["name"] == "gemm" and len(part["constants"]) == 9
    assert all(each["mape_after_percent"] < each["mape_before_percent"] for each in part["held_out"])
    assert document["profile"].startswith("mgs 1\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "Z9000"), "there is no profile of Z9000; name a sibling to start from: --from GPU"),
        (("--gpu", "A100"), "no rows of A100"),
        (("--gpu", "H100", "--from", "Z9000"), "there is no profile of Z9000 to start from"),
        (("--gpu", 'H100" {'), "is no name of a GPU"),
        (("--gpu", "H100", "--sample", "5"), "5 rows to fit 9 constants"),
    ],
)
def test_what_cannot_be_fitted_is_reported(measured: Path, words: tuple[str, ...], says: str) -> None:
    done = magus("calibrate", "--data", measured, *words)

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("magus calibrate: ") and says in done.stderr
    assert "internal error" not in done.stderr


def test_folders_and_files_that_are_none_are_reported(measured: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (measured / "gemm_a.csv").write_text("gpu,m\n")
    for folder, says in (
        (tmp_path / "none", "no such folder"),
        (measured / "gemm_h100.csv", "not a folder"),
        (tmp_path / "empty", "no rows of H100"),
        (measured, "no column dtype, n, k, time_us"),
    ):
        done = magus("calibrate", "--data", folder, "--gpu", "H100")

        assert (done.exit_code, done.stdout) == (1, "")
        assert says in done.stderr


def test_a_file_that_cannot_be_written_is_reported(measured: Path, tmp_path: Path) -> None:
    done = magus("calibrate", "--data", measured, "--gpu", "H100", "--write", tmp_path)

    assert done.exit_code == 1
    assert "directory" in done.stderr.lower() and "internal error" not in done.stderr


ROWS = """gpu,n_gpus,op,m,n,k,dtype,serial_us
H100,8,AG+GEMM,1024,1024,1024,bf16,120
H100,8,AG+GEMM,2048,1024,1024,bf16,130
H100,8,AG+GEMM,4096,1024,1024,bf16,150
H100,8,AG+GEMM,8192,1024,1024,bf16,190
"""


def test_an_implementation_is_fitted_to_rows_and_written(tmp_path: Path) -> None:
    rows, file = tmp_path / "rows.csv", tmp_path / "library.mgs"
    rows.write_text(ROWS)

    done = magus("calibrate", "--data", rows, "--implementation", "torch_nccl", "--write", file)

    assert done.exit_code == 0 and f"{file}: what was fitted" in done.stderr
    assert "torch_nccl on H100, constants fitted to measured times" in done.stdout
    assert "AG+GEMM: 2 of 4 rows, the others held out" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert magus("check", file).exit_code == 0 and magus("fmt", "--check", file).exit_code == 0
    assert "implementation torch_nccl_calibrated extends shipped.torch_nccl {" in file.read_text()
    document = json.loads(magus("calibrate", "--data", rows, "--implementation", "torch_nccl", "--json").stdout)
    assert document["profile"] == file.read_text() and document["schema"] == "magus-calibrate/1"


def test_wrong_rows_are_reported_and_nothing_is_written(tmp_path: Path) -> None:
    rows, file = tmp_path / "rows.csv", tmp_path / "library.mgs"
    rows.write_text(ROWS.replace(",130", ",-130").replace("1024,bf16,190", "1024,bf16,0"))

    done = magus("calibrate", "--data", rows, "--implementation", "torch_nccl", "--write", file)

    assert (done.exit_code, done.stdout, file.exists()) == (1, "", False)
    assert "rows.csv:3:36: MGS307 error: '-130' is no time" in done.stderr and "rows.csv:5" in done.stderr


def test_an_unknown_implementation_is_reported_with_the_closest(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)

    done = magus("calibrate", "--data", tmp_path / "rows.csv", "--implementation", "fluxx")

    assert done.exit_code == 1 and "MGS203" in done.stderr and "did you mean 'flux'?" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--gpu", "H100", "--implementation", "flux"),
        ("--implementation", "flux", "--seed", "1"),
        ("--implementation", "flux", "--from", "B200"),
    ],
)
def test_a_gpu_or_an_implementation_is_named_and_not_both(measured: Path, words: tuple[str, ...]) -> None:
    assert magus("calibrate", "--data", measured, *words).exit_code == 2
