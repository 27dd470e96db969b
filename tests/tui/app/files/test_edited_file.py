"""A file that is being edited: saving it, what others do to it, and a copy that outlives a crash."""

import os
from pathlib import Path

import pytest

from magus.tui.app.session.files import EditedFile, OnDisk, can_edit


@pytest.fixture
def file(tmp_path: Path) -> EditedFile:
    path = tmp_path / "a.mgs"
    path.write_text("let a = 1\n", encoding="utf-8")
    file = EditedFile(path, tmp_path / "state" / "unsaved")
    assert file.read() == "let a = 1\n"
    return file


def test_saving_writes_and_is_no_change_of_others(file: EditedFile) -> None:
    assert file.save("let a = 2\n") == ""
    assert file.path.read_text(encoding="utf-8") == "let a = 2\n"
    assert file.on_disk() is OnDisk.SAME


def test_what_others_do_is_seen(file: EditedFile) -> None:
    os.utime(file.path, ns=(1, 1))
    assert file.on_disk() is OnDisk.SAME, "touched, but the same"
    file.path.write_text("let a = 3\n", encoding="utf-8")
    assert file.on_disk() is OnDisk.CHANGED
    file.path.write_bytes(b"\0\1")
    assert file.on_disk() is OnDisk.UNREADABLE
    file.path.unlink()
    assert file.on_disk() is OnDisk.GONE
    assert file.save("let a = 4\n") == "", "a file that is gone is written again"
    assert file.on_disk() is OnDisk.SAME


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "b.mgs").write_bytes(b"\xff\xfe")
    gone, binary = EditedFile(tmp_path / "none.mgs", tmp_path), EditedFile(tmp_path / "b.mgs", tmp_path)

    assert (gone.read(), binary.read()) == ("", "")
    assert gone.problem.endswith("No such file or directory")
    assert binary.problem == "'b.mgs' is not UTF-8 text: byte 0 is none of it"


def test_a_file_that_cannot_be_written_says_why_and_keeps_its_text(tmp_path: Path) -> None:
    file = EditedFile(tmp_path / "none" / "a.mgs", tmp_path / "state")

    assert file.save("let a = 1\n").startswith("not saved: ")
    assert file.saved == ""


def test_an_unsaved_text_outlives_a_crash(file: EditedFile) -> None:
    assert file.kept() is None
    file.keep("let a = 5\n")
    again = EditedFile(file.path, file.folder)
    again.read()

    assert again.kept() == "let a = 5\n"
    assert EditedFile(file.path.parent / "other.mgs", file.folder).kept() is None
    again.save("let a = 6\n")
    assert again.kept() is None, "saving drops it"


def test_a_kept_text_that_was_saved_by_others_is_not_offered(file: EditedFile) -> None:
    file.keep("let a = 1\n")

    assert file.kept() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"path": 3, "text": 4}'])
def test_a_broken_copy_is_none(file: EditedFile, content: bytes) -> None:
    file.keep("let a = 5\n")
    (copy,) = file.folder.iterdir()
    copy.write_bytes(content)

    assert file.kept() is None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file", encoding="utf-8")
    file = EditedFile(tmp_path / "a.mgs", tmp_path / "blocked" / "unsaved")
    file.keep("let a = 5\n")
    file.forget()

    assert file.kept() is None


@pytest.mark.parametrize(
    ("text", "can"), [("a\nb\r\nc", True), ("a\x1b[31m", True), ("a\rb", False), ("a\x0cb\u2028", False)]
)
def test_texts_that_an_editor_would_change_are_reported(text: str, can: bool) -> None:
    assert can_edit(text) is can
