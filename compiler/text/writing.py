"""Write files atomically: a file is written whole or not at all, and a failure leaves the old content.

The text goes to a new file in the same folder, which replaces the old one once it is on disk: after a kill or with a
full disk, readers see the old text or the new one, never a part. All writing of files is here.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp


def write_whole(path: Path, content: str | bytes) -> bool:
    """Put ``content`` into the file at ``path``, text as UTF-8; return whether that replaced an older file.

    An existing file keeps its mode and, where that is allowed, its owner; a link stays, and its target is written. A
    device, a pipe and the file that stdout goes to are written in place.

    Raises
    ------
    OSError
        If it cannot be written, with ``path`` as its file name; the old content is then still there.
    """
    data = content.encode() if isinstance(content, str) else content
    with _named(path):
        before = _status(path)
        if before is not None and _is_written_in_place(before):
            with open(path, "ab") as stream:
                stream.write(data)
            return False
        _replace(path, data, before)
        return before is not None


def replace_whole(path: Path, data: bytes) -> None:
    """Put a file with ``data`` in the place of whatever is at ``path``, a link included.

    For what can be computed again: nobody waits until it is on disk, and the file is new, with a mode for its owner.

    Raises
    ------
    OSError
        If it cannot be written; nothing new is then left.
    """
    descriptor, temporary = mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Wait until no other thread or process of this machine is in the block for ``path``, a file that stays empty.

    One that ends, however suddenly, lets the next one in. The value says whether the file could be locked; where it
    cannot be, nobody waits.
    """
    with ExitStack() as held:
        try:
            import fcntl  # not on every system

            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("ab")), fcntl.LOCK_EX)
        except (ImportError, OSError):
            yield False
            return
        yield True


def check_writable(path: Path) -> None:
    """Raise the error of ``write_whole`` early, before the work whose result it is to write.

    Raises
    ------
    OSError
        If a file at ``path`` cannot be written as things are now.
    """
    with _named(path):
        before = _status(path)
        if before is None or not _is_written_in_place(before):
            number, name = _new_file(path, before)
            os.close(number)
            os.unlink(name)
        elif stat.S_ISDIR(before.st_mode) or not os.access(path, os.W_OK):
            with open(path, "ab"):
                pass


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Make errors name ``path``, and not the temporary file beside it."""
    try:
        yield
    except ValueError:
        raise OSError(errno.EINVAL, "the path is not valid", str(path)) from None
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _status(path: Path) -> os.stat_result | None:
    """Return the status of the file at the path; None if there is none."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_written_in_place(before: os.stat_result) -> bool:
    """Whether it is no regular file, or one that this process already prints to, as with ``-o /dev/stdout > F``."""
    if not stat.S_ISREG(before.st_mode):
        return True
    for number in (1, 2):
        with suppress(OSError):  # it is closed
            if os.path.samestat(os.fstat(number), before):
                return True
    return False


def _replace(path: Path, data: bytes, before: os.stat_result | None) -> None:
    number, name = _new_file(path, before)
    try:
        with open(number, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(number)
        os.replace(name, os.path.realpath(path))
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(os.path.dirname(name))


def _new_file(path: Path, before: os.stat_result | None) -> tuple[int, str]:
    """Open a new empty file in the folder of the file that ``path`` leads to; return its number and name."""
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a rename would not ask
    name = os.path.join(os.path.dirname(os.path.realpath(path)), f".magus-{os.urandom(8).hex()}")
    try:
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
    except FileNotFoundError:
        is_there = os.path.isdir(os.path.dirname(name))  # /proc is, and holds no files of others
        what = f"no file can be made in {path.parent}" if is_there else f"there is no folder {path.parent}"
        raise FileNotFoundError(errno.ENOENT, what) from None
    except PermissionError as error:
        raise PermissionError(errno.EACCES, f"no file can be made in its folder: {error.strerror}") from None
    if before is not None:
        with suppress(OSError):  # only root gives files away
            os.chown(name, before.st_uid, before.st_gid)
        with suppress(OSError):
            os.chmod(name, stat.S_IMODE(before.st_mode))
    return number, name


def _sync_folder(folder: str) -> None:
    """Flush the folder, so that the new name survives a crash; some file systems cannot."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
