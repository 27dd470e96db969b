"""The wheel holds what users need, and works outside the checkout."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.some import some

CODE = ("grammar", "compiler", "simcore", "runtime", "advisor", "tui", "examples")


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def listed_packages() -> set[str]:
    return set(project()["tool"]["setuptools"]["packages"])  # type: ignore[index]


def test_every_folder_with_code_is_listed_as_a_package() -> None:
    found = {"magus"}
    for top in CODE:
        for init in (ROOT / top).rglob("__init__.py"):
            found.add(".".join(("magus", *init.parent.relative_to(ROOT).parts)))

    assert listed_packages() == found


def test_every_folder_with_modules_has_an_init() -> None:
    programs = {ROOT / "examples" / name for name in ("clients", "runtimes")}  # that users run or copy
    for top in CODE:
        folders = {module.parent for module in (ROOT / top).rglob("*.py")} - programs

        assert all((folder / "__init__.py").exists() for folder in some(folders))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_grammar_library_model_and_examples(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    for name in (
        "magus/grammar/mgs.lark",
        "magus/compiler/library/amd/mi300x.mgs",
        "magus/compiler/from_model/classes.toml",
        "magus/compiler/targets/triton_kernel.py.txt",
        "magus/compiler/library/nvidia/h100.mgs",
        "magus/advisor/learned/model/proposals.model",
        "magus/examples/llama70b_tp8_mi300x.mgs",
        "magus/tui/app/magus.tcss",
        "magus/py.typed",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("magus/tests", "magus/benchmarks"))]


@pytest.mark.slow
def test_the_sdist_holds_what_tests_and_documents_need(tmp_path: Path) -> None:
    # A copy, since the list of files that an earlier build left in the tree would be taken up.
    tree = shutil.copytree(ROOT, tmp_path / "tree", ignore=shutil.ignore_patterns(".*", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(tmp_path), str(tree)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for folder in ("tests", "docs", "benchmarks", *CODE):
        assert {str(path.relative_to(tree)) for path in (tree / folder).rglob("*") if path.is_file()} <= names
    assert {"Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "LICENSE", "pyproject.toml"} <= names


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
