"""Writing files: the one place that does. A file is written whole or not at all, and what was there survives a failure.

The text goes to a new file in the same folder, which takes the place of the old one once the disk has all of it: a
reader, a kill and a full disk meet the old text or the new one, never a part.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Put ``content`` into the file at ``path``; text as UTF-8.

    An existing file keeps its mode and, where that is allowed, its owner; a link stays one and the file that it names
    is written. A device, a pipe and the file that stdout goes to are written to as they are.

    Raises
    ------
    OSError
        If it cannot be written, with ``path`` as its file name; then what was there before is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    with _named(path):
        before = _status(path)
        if before is not None and _is_written_in_place(before):
            with open(path, "ab") as stream:
                stream.write(data)
        else:
            _replace(path, data, before)


def check_writable(path: Path) -> None:
    """Raise what ``write_whole`` would, before the work is done whose outcome has to go there.

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
    """Errors name the file that was asked for, and not the one beside it."""
    try:
        yield
    except ValueError:
        raise OSError(errno.EINVAL, "the path is not valid", str(path)) from None
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _status(path: Path) -> os.stat_result | None:
    """What the path leads to; None where nothing is there yet."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_written_in_place(before: os.stat_result) -> bool:
    """Whether it is no file of its own, or one that this process prints to already, as with ``-o /dev/stdout > F``."""
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
    """A new empty file in the folder of the file that ``path`` names, open, and its name."""
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a rename would not ask
    name = os.path.join(os.path.dirname(os.path.realpath(path)), f".magus-{secrets.token_hex(8)}")
    try:
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if before is None else 0o600)
    except PermissionError as error:
        raise PermissionError(errno.EACCES, f"no file can be made in its folder: {error.strerror}") from None
    if before is not None:
        with suppress(OSError):  # only root gives files away
            os.chown(name, before.st_uid, before.st_gid)
        with suppress(OSError):
            os.chmod(name, stat.S_IMODE(before.st_mode))
    return number, name


def _sync_folder(folder: str) -> None:
    """Make the new name last; not every file system can."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
