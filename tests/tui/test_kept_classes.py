"""Code of dataclasses on disk: the classes are the same with it, and a file that was altered is not used."""

import marshal
import sys
from dataclasses import dataclass, fields
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from zlib import crc32

import pytest

from magus.tui.cli import kept_classes


def made(path: Path) -> type:
    """A class that is made while the code at ``path`` is used."""
    with kept_classes(path):

        @dataclass(frozen=True, slots=True)
        class Point:
            x: int
            y: int = 2

    return Point


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that classes may be kept in."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "cache" / "some.classes"


def test_classes_are_the_same_whether_their_code_is_compiled_or_kept(path: Path) -> None:
    compiled = made(path)
    kept = path.read_bytes()
    found = made(path)

    for point in (compiled, found):
        assert [field.name for field in fields(point)] == ["x", "y"]
        assert point(1) == point(1, 2) != point(2) and hash(point(1)) == hash(point(1, 2))
        assert repr(point(1)).endswith("Point(x=1, y=2)")
        with pytest.raises(AttributeError):
            point(1).x = 3
    assert path.read_bytes() == kept  # nothing was compiled again


def test_kept_code_is_what_runs(path: Path) -> None:
    made(path)
    known = marshal.loads(path.read_bytes()[len(MAGIC_NUMBER) + 4 :])
    changed = {text: compile(text.replace("Point", "Kept").replace("(x=", "(kept="), "", "exec") for text in known}
    data = marshal.dumps(changed)
    path.write_bytes(MAGIC_NUMBER + crc32(data).to_bytes(4, "big") + data)

    assert repr(made(path)(1)).endswith("(kept=1, y=2)")


@pytest.mark.parametrize("damage", [b"", b"x", b"cut", b"flipped", b"magic"])
def test_a_damaged_file_is_made_anew(path: Path, damage: bytes) -> None:
    made(path)
    kept = path.read_bytes()
    flipped = kept[:-1] + bytes([kept[-1] ^ 1])
    path.write_bytes({b"cut": kept[:-9], b"flipped": flipped, b"magic": b"zzzz" + kept[4:]}.get(damage, damage))

    assert made(path)(1).y == 2
    assert path.read_bytes() == kept


def test_nothing_is_kept_where_python_keeps_no_bytecode(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made(path)

    assert not path.exists()


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "file").write_text("")

    assert made(tmp_path / "file" / "some.classes")(1).y == 2
