"""The wheel holds what users need, and works outside the checkout."""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.some import some

CODE = ("grammar", "compiler", "simcore", "runtime", "advisor", "tui", "examples")

PROGRAMS = {ROOT / "examples" / name for name in ("clients", "runtimes")}
"""What users run or copy, and is no package."""


def test_every_folder_with_modules_has_an_init() -> None:
    for top in CODE:
        folders = {module.parent for module in (ROOT / top).rglob("*.py")} - PROGRAMS

        assert all((folder / "__init__.py").exists() for folder in some(folders))


def copied(place: Path) -> Path:
    """Return a copy of the tree, since what an earlier build left there is taken up, and builds write there."""
    left_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist")
    return shutil.copytree(ROOT, place / "tree", ignore=left_out)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    tree = copied(out)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(tree)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_all_modules_of_the_product_grammar_library_model_and_examples(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {module for top in CODE for module in (ROOT / top).rglob("*.py") if module.parent not in PROGRAMS}

    found = {name for name in names if name.endswith(".py")}
    assert found == {f"magus/{module.relative_to(ROOT)}" for module in some(modules | {ROOT / "__init__.py"})}
    for name in (
        "magus/grammar/mgs.lark",
        "magus/compiler/library/amd/mi300x.mgs",
        "magus/compiler/from_model/classes.toml",
        "magus/compiler/machine/known_gpus.toml",
        "magus/compiler/targets/triton_kernel.py.txt",
        "magus/compiler/library/nvidia/h100.mgs",
        "magus/advisor/learned/model/proposals.model",
        "magus/advisor/measured/validate/notes.toml",
        "magus/examples/llama70b_tp8_mi300x.mgs",
        "magus/tui/app/magus.tcss",
        "magus/py.typed",
    ):
        assert name in names


@pytest.mark.slow
def test_the_sdist_holds_what_tests_and_documents_need(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    command = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(tmp_path), str(tree)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for folder in ("tests", "docs", "benchmarks", *CODE):
        assert {str(path.relative_to(tree)) for path in (tree / folder).rglob("*") if path.is_file()} <= names
    assert {"Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "LICENSE", "pyproject.toml"} <= names


@pytest.mark.slow
def test_an_editable_install_is_the_checkout(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    venv.create(tmp_path / "venv", with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(tree)]
    subprocess.run(command, check=True, cwd=tmp_path)
    (tree / "examples" / "added.py").write_text("VALUE = 7\n")
    program = "from magus.examples import added, path; print(added.VALUE, path('gemm_rs_h100'))"

    done = subprocess.run([python, "-I", "-c", program], check=True, cwd=tmp_path, capture_output=True, text=True)

    assert done.stdout == f"7 {tree / 'examples' / 'gemm_rs_h100.mgs'}\n"


@pytest.mark.slow
def test_the_wheel_advises_from_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True, cwd=tmp_path)
    where = subprocess.run(
        [python, "-c", "import magus.examples as e; print(e.path('decode_small_batch'))"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    example = where.stdout.strip()

    advice = subprocess.run([home / "bin" / "magus", "advise", example], cwd=tmp_path, capture_output=True, text=True)

    assert not Path(example).is_relative_to(ROOT)
    assert advice.returncode == 0, advice.stderr
    assert "SERIAL" in advice.stdout
