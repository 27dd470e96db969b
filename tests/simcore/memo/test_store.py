"""The folder of entries: bounded, safe under other processes and their ends, and never a reason to fail."""

import errno
import os
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.text import writing
from magus.simcore.memo import memo as store_module
from magus.simcore.memo.memo import NUM_FOLDERS, Store, user_store
from tests.helpers.entries import key, noise


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "folder")

    assert store.read(key("a")) is None
    store.write(key("a"), b"one")
    store.write(key("b"), b"")
    store.write(key("a"), b"two")

    assert (store.read(key("a")), store.read(key("b"))) == (b"two", b"")
    assert len(files(tmp_path)) == 2


def test_every_byte_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(key("a"), b"data")
    (file,) = files(tmp_path)
    sound = file.read_bytes()

    for place in range(len(sound)):
        for changed in (sound[place] ^ 1, sound[place] ^ 255):
            file.write_bytes(sound[:place] + bytes([changed]) + sound[place + 1 :])
            assert store.read(key("a")) is None
        file.write_bytes(sound[:place])
        assert store.read(key("a")) is None
    file.write_bytes(sound + b"x")
    assert store.read(key("a")) is None
    file.write_bytes(sound)
    assert store.read(key("a")) == b"data"


@given(st.binary())
def test_what_somebody_else_wrote_is_no_entry(data: bytes) -> None:
    assert store_module._opened(key("a"), data, 1000) is None


def test_an_entry_under_another_name_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(key("a"), b"data")
    other = store._path(key("b"))
    other.parent.mkdir(exist_ok=True)
    store._path(key("a")).rename(other)

    assert store.read(key("b")) is None


def test_what_unpacks_to_too_much_is_no_entry(tmp_path: Path) -> None:
    large, small = Store(tmp_path), Store(tmp_path, NUM_FOLDERS * 1000)
    large.write(key("a"), bytes(100_000))

    assert large.read(key("a")) is not None
    assert small.read(key("a")) is None


def keys_of_one_folder(number: int) -> list[str]:
    found = (name for name in map(key, count()) if name.startswith("00"))
    return [next(found) for _ in range(number)]


def test_the_bound_is_kept_and_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, NUM_FOLDERS * 1000)
    first, second, third, fourth = keys_of_one_folder(4)
    for age, name in ((3, first), (2, second), (1, third)):
        store.write(name, noise(200))
        os.utime(store._path(name), (1e9 - age, 1e9 - age))

    assert store.read(first) is not None  # and was used now
    store.write(fourth, noise(300))

    assert [store.read(name) is not None for name in (first, second, third, fourth)] == [True, False, True, True]
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 1000


def test_a_store_stays_within_its_bound(tmp_path: Path) -> None:
    store = Store(tmp_path, 100_000)
    for name in range(1500):
        store.write(key(name), noise(50 + name % 300, name))

    assert 20_000 < sum(file.stat().st_size for file in files(tmp_path)) <= 100_000


def test_what_is_larger_than_its_share_is_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path, NUM_FOLDERS * 1000)
    store.write(key("kept"), noise(900))
    store.write(key("large"), noise(1000))

    assert (store.read(key("kept")), store.read(key("large"))) == (noise(900), None)


def test_files_of_others_stay(tmp_path: Path) -> None:
    store = Store(tmp_path, NUM_FOLDERS * 1000)
    first, second = keys_of_one_folder(2)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(5000))
    mine = [store._path(first).parent / name for name in ("notes.txt", "a" * 64 + ".tar.gz", "A" * 64)]
    mine[0].parent.mkdir()
    for file in mine:
        file.write_bytes(bytes(5000))
    link = mine[0].parent / ("0" * 64)
    link.symlink_to(elsewhere)

    store.write(first, noise(900))
    store.write(second, noise(900))

    assert store.read(second) is not None
    assert [file.stat().st_size for file in (*mine, link, elsewhere)] == [5000] * 5


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_full_or_broken_disk_is_no_error(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.write(key("a"), b"data")

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for name in ("replace", "utime", "unlink"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            store.write(key("b"), b"other")
            assert store.read(key("a")) == b"data"
    monkeypatch.setattr(writing, "mkstemp", failing)
    store.write(key("c"), b"more")
    assert store.read(key("c")) is None


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    Store(tmp_path).write(key("a"), b"data")

    assert not files(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(key("a"), b"data")
    folders = [tmp_path, *(path for path in tmp_path.iterdir())]
    for folder in folders:
        folder.chmod(0o500)
    try:
        store.write(key("b"), b"other")
        assert (store.read(key("a")), store.read(key("b"))) == (b"data", None)
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_a_file_in_place_of_a_folder_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    store = Store(file / "results")
    store.write(key("a"), b"data")

    assert store.read(key("a")) is None
    assert file.read_text() == "mine"


WRITER = """
import sys
from pathlib import Path
from magus.simcore.memo.memo import Store
from tests.helpers.entries import key, noise
store = Store(Path(sys.argv[1]), 256 * 20_000)
print("begun", flush=True)
for turn in range(int(sys.argv[2])):
    for name in range(20):
        store.write(key(name), noise(3000, name))
        assert store.read(key(name)) in (None, noise(3000, name)), name
"""


def writer(folder: Path, turns: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(turns)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path: Path) -> None:
    writers = [writer(tmp_path, 10) for _ in range(2)]

    assert [process.wait(60) for process in writers] == [0, 0]
    for process in writers:
        process.communicate()
    assert all(Store(tmp_path, 256 * 20_000).read(key(name)) == noise(3000, name) for name in range(20))
    assert len(files(tmp_path)) == 20


@pytest.mark.skipif(os.name != "posix", reason="no signal ends a process at once")
def test_a_writer_that_is_killed_leaves_sound_entries(tmp_path: Path) -> None:
    store = Store(tmp_path, 256 * 20_000)
    for _ in range(2):
        process = writer(tmp_path, 1_000_000)
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        try:
            process.communicate(timeout=0.05)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert all(store.read(key(name)) in (None, noise(3000, name)) for name in range(20))
    for name in range(20):
        store.write(key(name), noise(3000, name))
    assert all(store.read(key(name)) == noise(3000, name) for name in range(20))


def test_what_a_killed_writer_left_goes_when_room_is_needed(tmp_path: Path) -> None:
    store = Store(tmp_path, NUM_FOLDERS * 1000)
    name = keys_of_one_folder(1)[0]
    left = tmp_path / "00" / f"{name}.ab_12xyz"
    left.parent.mkdir()
    left.write_bytes(noise(900))

    store.write(name, noise(900))

    assert not left.exists()
    assert store.read(name) is not None


def test_the_folder_is_the_one_named_else_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGUS_CACHE_DIR", str(tmp_path))
    assert user_store() == Store(tmp_path / "results")

    monkeypatch.setenv("MAGUS_CACHE_DIR", "")
    monkeypatch.setattr(store_module, "user_cache_path", lambda *_, **__: tmp_path / "user")
    assert user_store() == Store(tmp_path / "user" / "results")

    monkeypatch.setattr(store_module, "user_cache_path", lambda *_, **__: Path("~/.cache/magus"))  # nobody's home
    assert user_store() is None


def test_who_computes_an_entry_is_alone_until_its_process_ends(tmp_path: Path) -> None:
    inside = "import sys, time; from magus.simcore.memo.memo import Store; from pathlib import Path\n"
    inside += f"with Store(Path({str(tmp_path)!r})).alone({key('a')!r}): print('in', flush=True); time.sleep(600)"
    first = subprocess.Popen([sys.executable, "-c", inside], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "in\n"
    entered = [threading.Event() for _ in range(2)]

    def enter(name: str, event: threading.Event) -> None:
        with Store(tmp_path).alone(key(name)):
            event.set()

    waiting = threading.Thread(target=enter, args=("a", entered[0]))
    waiting.start()
    enter("b", entered[1])
    assert entered[1].is_set() and not entered[0].wait(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    waiting.join(60)
    assert entered[0].is_set()


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Store(tmp_path / "file").alone(key("a")), Store(tmp_path / "file").alone(key("a")):
        assert files(tmp_path) == [tmp_path / "file"]
