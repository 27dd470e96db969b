"""Files are written whole or not at all, by one function; whatever goes wrong, the old text is still there."""

import ast
import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from magus.compiler.text.writing import check_writable, write_whole
from tests.helpers.paths import ROOT

CODE = ("grammar", "compiler", "simcore", "runtime", "advisor", "tui", "examples")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a text, alone in a folder."""
    path = tmp_path / "a.txt"
    path.write_text("first")
    return path


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_text_and_nothing_else(
    file: Path, step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(type(error)) as raised:
        write_whole(file, "second")
    monkeypatch.undo()

    assert [each.name for each in file.parent.iterdir()] == ["a.txt"]
    assert file.read_text() == "first"
    if isinstance(raised.value, OSError):
        assert (raised.value.filename, raised.value.strerror) == (str(file), "No space left on device")


def test_a_disk_that_fills_on_the_way_leaves_the_old_text(file: Path) -> None:
    script = f"""
import resource
from pathlib import Path
from magus.compiler.text.writing import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path({str(file)!r}), "x" * 100_000)
except OSError as error:
    print(error.filename)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == f"{file}\n"
    assert [each.name for each in file.parent.iterdir()] == ["a.txt"]
    assert file.read_text() == "first"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_leaves_the_old_text(file: Path, step: str) -> None:
    script = f"""
import os, signal
from pathlib import Path
from magus.compiler.text.writing import write_whole
os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path({str(file)!r}), "x" * 100_000)
"""
    done = subprocess.run([sys.executable, "-c", script])

    assert done.returncode == -9
    assert file.read_text() == "first"


def test_the_text_is_on_the_disk_before_it_takes_the_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):

        def step(*words: object, real: object = getattr(os, name), name: str = name) -> None:
            steps.append(name)
            real(*words)  # type: ignore[operator]

        monkeypatch.setattr(os, name, step)
    write_whole(file, "second")

    assert steps == ["fsync", "replace", "fsync"]  # the text, the new name, the folder
    assert file.read_text() == "second"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_mode(file: Path, mode: int) -> None:
    file.chmod(mode)

    write_whole(file, "second")

    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()

    write_whole(tmp_path / "ours", b"\x00")

    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode
    assert (tmp_path / "ours").read_bytes() == b"\x00"


def test_a_file_that_must_not_be_written_is_not_replaced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for anybody but root after chmod 444

    for write in (partial(write_whole, content="second"), check_writable):
        with pytest.raises(PermissionError) as raised:
            write(file)
        assert raised.value.filename == str(file)
    assert file.read_text() == "first"


def test_a_folder_that_takes_no_file_is_the_reason(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(PermissionError, match=f"no file can be made in its folder: Permission denied: '{file}'"):
        write_whole(file, "second")


@pytest.mark.parametrize("text", ["first", None])
def test_a_link_stays_a_link(tmp_path: Path, text: str | None) -> None:
    link, out = tmp_path / "link.json", tmp_path / "folder" / "p.json"
    out.parent.mkdir()
    if text is not None:
        out.write_text(text)
    link.symlink_to(Path("folder", "p.json"))

    write_whole(link, "second")

    assert link.is_symlink() and out.read_text() == "second"
    assert [each.name for each in out.parent.iterdir()] == ["p.json"]


def test_a_circle_of_links_is_an_error_with_its_name(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)

    with pytest.raises(OSError) as raised:
        write_whole(link, "text")
    assert raised.value.filename == str(link) and link.is_symlink()


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "text")
        assert os.read(reader, 16) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_whole(Path("/dev/full"), "text")


@pytest.mark.parametrize("where", ["w", "a"])
def test_what_goes_to_stdout_joins_what_is_there(tmp_path: Path, where: str) -> None:
    out = tmp_path / "out"
    out.write_text("before ")
    imports = "from pathlib import Path; from magus.compiler.text.writing import write_whole"
    script = f"{imports}; write_whole(Path('/dev/stdout'), 'x')"
    with out.open(where) as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)

    assert out.read_text() == ("x" if where == "w" else "before x")


@pytest.mark.parametrize("name", ["none/p.json", ".", "a.txt/p.json", "nul\0", "x" * 300])
def test_what_cannot_be_written_is_known_before(file: Path, name: str) -> None:
    path = file.parent / name
    for write in (check_writable, partial(write_whole, content="text")):
        with pytest.raises(OSError) as raised:
            write(path)
        assert raised.value.filename == str(path)
    assert [each.name for each in file.parent.iterdir()] == ["a.txt"]


def test_asking_whether_a_file_can_be_written_changes_nothing(file: Path) -> None:
    check_writable(file)
    check_writable(file.with_name("new"))

    assert [each.name for each in file.parent.iterdir()] == ["a.txt"] and file.read_text() == "first"


WRITERS = {"write_text", "write_bytes", "mkstemp", "NamedTemporaryFile", "TemporaryFile", "rename", "renames", "dump"}
MAY_WRITE = re.compile(rf"\b({'|'.join(sorted(WRITERS))}|open|fdopen)\(|\bos\.replace\(")
"""What a module says that writes: the others need not be parsed."""


def writes_of(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that may write a file: by their name, or that open one in a mode that writes or that is not said here."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = call.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        of = getattr(getattr(function, "value", None), "id", "")
        if name in WRITERS or (name, of) in {("open", "os"), ("replace", "os"), ("fdopen", "os")}:
            yield call
        elif name == "open":
            modes = [
                each.value
                for each in [*call.args, *(one.value for one in call.keywords)]
                if isinstance(each, ast.Constant)
            ]
            if any(
                isinstance(mode, str) and set(mode) & set("wax+") and set(mode) <= set("rwaxbt+U") for mode in modes
            ):
                yield call


def test_nothing_else_opens_a_file_for_writing() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for top in CODE
        for module in (ROOT / top).rglob("*.py")
        for text in [module.read_text(encoding="utf-8")]
        if MAY_WRITE.search(text)
        for call in writes_of(ast.parse(text))
        if module != ROOT / "compiler" / "text" / "writing.py" and "os.devnull" not in ast.unparse(call)
        # Processes of ranks talk through a folder of their own, which goes when they end.
        if module.parent != ROOT / "runtime" / "over_torch"
    ]

    assert found == []


def test_the_search_for_writers_finds_them() -> None:
    wanted = ("p.write_text(t)", "open(p, 'w')", "p.open(mode='ab')", "os.open(p, os.O_WRONLY)", "os.replace(a, b)")

    for text in wanted:
        assert MAY_WRITE.search(text) and list(writes_of(ast.parse(text))), text
    for text in ("open(p)", "p.open('rb')", "open(p, encoding='utf-8')", "text.replace('a', 'b')"):
        assert not list(writes_of(ast.parse(text))), text


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that holds no files of others")
def test_a_folder_that_holds_no_files_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file can be made in /proc"):
        check_writable(Path("/proc/x.svg"))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        check_writable(tmp_path / "none" / "x.svg")
