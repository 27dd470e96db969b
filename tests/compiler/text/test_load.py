from importlib.resources import files
from pathlib import Path

import pytest

from magus.compiler import CompileError, compile_file
from magus.compiler.text.load import MAX_DEPTH
from magus.compiler.text.names import shipped_libraries

BODY = """use "amd/mi300x"
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload g on node { a = tensor bf16[size, 64]; y = gemm(a, b); b = tensor bf16[64, 64] }
""".replace("y = gemm(a, b); b = tensor bf16[64, 64]", "b = tensor bf16[64, 64]; y = gemm(a, b)")


def codes_of(path: Path) -> list[str]:
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    return [found.code.name for found in caught.value.diagnostics]


def test_included_names_belong_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "sizes.mgs").write_text('include "more.mgs"\n', encoding="utf-8")
    (tmp_path / "parts" / "more.mgs").write_text("mgs 1\nlet size = 128\n", encoding="utf-8")
    main = tmp_path / "main.mgs"
    main.write_text(f'{BODY}include "parts/sizes.mgs"\ninclude "parts/more.mgs"\n', encoding="utf-8")
    gemm = compile_file(main).scenario().case.shape.gemm
    assert gemm is not None and gemm.m == 128


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.mgs").write_text("let size = 1 GiB + 2 us\n", encoding="utf-8")
    main = tmp_path / "main.mgs"
    main.write_text(f'include "sizes.mgs"\n{BODY}', encoding="utf-8")
    with pytest.raises(CompileError) as caught:
        compile_file(main)
    (found,) = caught.value.diagnostics
    assert found.code.name == "MGS303" and found.span.source.path == str(tmp_path / "sizes.mgs")


def test_a_cycle_of_includes(tmp_path: Path) -> None:
    main, other = tmp_path / "main.mgs", tmp_path / "other.mgs"
    main.write_text(f'let size = 8\ninclude "other.mgs"\n{BODY}', encoding="utf-8")
    other.write_text('include "main.mgs"\n', encoding="utf-8")
    assert codes_of(main) == ["MGS205"]


def test_a_link_that_leads_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.mgs").write_text("let size = 8\n", encoding="utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "inside.mgs").symlink_to(tmp_path / "secret.mgs")
    main = folder / "main.mgs"
    main.write_text(f'include "inside.mgs"\n{BODY}', encoding="utf-8")
    assert codes_of(main) == ["MGS207"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../main.mgs", "~/x.mgs", ".", "a\\..\\b"])
def test_paths_that_are_refused(tmp_path: Path, path: str) -> None:
    main = tmp_path / "main.mgs"
    main.write_text(f'let size = 8\ninclude "{path}"\n{BODY}', encoding="utf-8")
    assert codes_of(main)[0] in ("MGS207", "MGS120")


def test_includes_nested_too_deeply(tmp_path: Path) -> None:
    for depth in range(MAX_DEPTH + 2):
        (tmp_path / f"f{depth}.mgs").write_text(f'include "f{depth + 1}.mgs"\n', encoding="utf-8")
    (tmp_path / f"f{MAX_DEPTH + 2}.mgs").write_text("let a = 1\n", encoding="utf-8")
    assert "MGS134" in codes_of(tmp_path / "f0.mgs")


def test_too_many_includes(tmp_path: Path) -> None:
    names = [f"f{number}.mgs" for number in range(70)]
    for name in names:
        (tmp_path / name).write_text(f"let {name[:-4]} = 1\n", encoding="utf-8")
    main = tmp_path / "main.mgs"
    main.write_text("".join(f'include "{name}"\n' for name in names), encoding="utf-8")
    assert "MGS134" in codes_of(main)


@pytest.mark.slow
def test_the_words_of_all_included_files_are_counted_together(tmp_path: Path) -> None:
    for number in range(20):
        lines = [f"let a{number}_{line} = 1\n" for line in range(600)]
        (tmp_path / f"f{number}.mgs").write_text("".join(lines), encoding="utf-8")
    main = tmp_path / "main.mgs"
    main.write_text("".join(f'include "f{number}.mgs"\n' for number in range(20)), encoding="utf-8")
    assert "MGS131" in codes_of(main)


def test_shipped_libraries_are_the_files_of_the_folder() -> None:
    folder = files("magus.compiler") / "library"
    found = [file for vendor in folder.iterdir() if vendor.is_dir() for file in vendor.iterdir()]
    names = {f"{Path(str(file)).parent.name}/{file.name.removesuffix('.mgs')}" for file in found if ".mgs" in file.name}

    assert shipped_libraries() == tuple(sorted(names))
    assert {"amd/mi300x", "implementations/flux", "nvidia/h100", "stacks/torchtitan"} <= names


@pytest.mark.parametrize("name", ["../pipeline", "amd/../amd/mi300x", "amd", "", "/etc/passwd", "amd/mi300x.mgs"])
def test_a_library_is_only_ever_one_that_ships(tmp_path: Path, name: str) -> None:
    main = tmp_path / "main.mgs"
    main.write_text(f'let size = 8\n{BODY}use "{name}"\n', encoding="utf-8")
    assert codes_of(main) == ["MGS208"]


def test_the_same_library_twice(tmp_path: Path) -> None:
    (tmp_path / "part.mgs").write_text('use "amd/mi300x"\nlet size = 64\n', encoding="utf-8")
    main = tmp_path / "main.mgs"
    main.write_text(f'include "part.mgs"\nuse "amd/mi300x" as amd\n{BODY}', encoding="utf-8")
    assert compile_file(main).scenario().case.gpu.name == "MI300X"


@pytest.mark.parametrize(
    ("fabric", "hint"),
    [
        ("full_mesh(xgmi)", "add the library of your GPU: it is in amd/mi300x, amd/mi325x, amd/mi355x"),
        ("switch(nvswitch, link=ib)", "declare it: link ib { ... }"),
        ("ring(xgmy)", "did you mean 'xgmi'? it is in amd/mi300x, amd/mi325x, amd/mi355x"),
        ("switch(nvswitch, link=nvlnk)", "did you mean 'nvlink'?"),
    ],
)
def test_an_unknown_device_is_named_with_the_library_that_declares_it(tmp_path: Path, fabric: str, hint: str) -> None:
    main = tmp_path / "main.mgs"
    main.write_text(f'use "nvidia/h100"\nsystem node {{ gpus 8 x H100; fabric {fabric} }}\n', encoding="utf-8")
    with pytest.raises(CompileError) as caught:
        compile_file(main)
    assert [found.hint for found in caught.value.diagnostics] == [hint]


def test_an_unknown_device_of_a_library_with_another_name_is_that_of_the_library(tmp_path: Path) -> None:
    main = tmp_path / "main.mgs"
    system = "system node { gpus 8 x H100; fabric full_mesh(nv.nvlink) }"
    main.write_text(f'use "nvidia/h100" as nv\n{system}\n', encoding="utf-8")
    with pytest.raises(CompileError) as caught:
        compile_file(main)
    assert [found.hint for found in caught.value.diagnostics] == ["did you mean 'nv.H100'?"]
