"""Files that the program writes for users: whole or not at all, and never over an input of the run; or appended to."""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perftool.errors import OutputClosedError, PerfToolError

# Twice as fast as zlib's usual level, and a tenth larger.
_GZIP_LEVEL = 3
_GZIP_FORMAT = 31
_PIECE_BYTES = 1 << 20


def require_no_input(targets: Iterable[str | None], inputs: Iterable[str]) -> None:
    """Raises PerfToolError when one of ``targets`` is the same file as one of ``inputs``, by whatever name.

    To be asked before the inputs are read: what they say would be gone. None and '-' are stdout.
    """
    read = {key for path in inputs if (key := _identity(path))}
    for target in targets:
        if target not in (None, "-") and _identity(str(target)) in read:
            raise PerfToolError(f"{target}: is an input of this run, which is never changed; name another file")


def write_file(blocks: Iterable[bytes], target: Path) -> None:
    """Write ``blocks`` to ``target``: a regular file is replaced once the new one is whole; a device, a pipe or a
    socket is written to as it stands.

    A symbolic link is followed: the user named it, and it goes on pointing where it does. Raises PerfToolError when
    the file cannot be written, and OutputClosedError when nobody reads the pipe any more.
    """
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is None or stat.S_ISREG(mode):
            with whole_file(target) as place, open(place, "wb") as file:
                file.writelines(blocks)
            return
        with open(target, "wb", buffering=0) as file:
            for block in blocks:
                file.write(block)
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None


def append_to_file(block: bytes, target: Path) -> None:
    """Append ``block``, whole lines, to ``target`` in one write, so that lines of several programs do not mix.

    A last line that was cut off is ended first. A device, a pipe or a socket is written to as it stands. Raises
    PerfToolError when the file cannot be written, or takes a part of the block only.
    """
    try:
        with open(target, "ab", buffering=0) as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and found.st_size and not _ends_a_line(target):
                block = b"\n" + block
            if file.write(block) != len(block):
                raise PerfToolError(f"{target}: took a part of the lines only; the disk may be full")
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None


def _ends_a_line(target: Path) -> bool:
    with open(target, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def gzipped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """``blocks`` as one gzip stream, which holds no name and no time."""
    squeeze = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
    for block in blocks:
        yield squeeze.compress(block)
    yield squeeze.flush()


@contextmanager
def gzipped_at_the_end(target: Path) -> Iterator[Path]:
    """Yields where to write plainly what stands gzipped in ``target`` at the end.

    For writers that compress line by line, as torch.profiler does: in large pieces it takes a fraction of the time.
    """
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        plain = Path(folder) / target.name.removesuffix(".gz")
        yield plain
        with open(plain, "rb") as source, open(target, "wb") as packed:
            packed.writelines(gzipped(iter(lambda: source.read(_PIECE_BYTES), b"")))


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yields where to write what becomes ``target`` at the end, unless something is raised; the name ends alike.

    The folder of ``target`` must be there. An existing file keeps its permissions.
    """
    real = Path(os.path.realpath(target))
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o666 & ~_umask()
    # A folder, as what is written there may need files of its own beside it.
    with tempfile.TemporaryDirectory(dir=real.parent, prefix=f".{real.name}.") as folder:
        place = Path(folder) / real.name
        yield place
        os.chmod(place, mode)
        os.replace(place, real)


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a regular file from all others; None for what is none, or not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
