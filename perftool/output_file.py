"""Writes output files atomically, appends to files, and prevents outputs from overwriting inputs."""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perftool.errors import OutputClosedError, PerfToolError

# Twice as fast as zlib's default level, for 10 % more output.
_GZIP_LEVEL = 3
_GZIP_FORMAT = 31
_PIECE_BYTES = 1 << 20


def require_apart(targets: Iterable[str | None], inputs: Iterable[str]) -> None:
    """Raise PerfToolError if one of ``targets`` is the same file as one of ``inputs`` or as another target, whatever
    their names. None and '-' are stdout.

    Call it before reading the inputs, so that no output can overwrite them.
    """
    read: set[tuple[int, int] | str] = {key for path in inputs if (key := _identity(path))}
    written: set[tuple[int, int] | str] = set()
    for target in targets:
        if target is None or target == "-":
            continue
        place: tuple[int, int] | str | None = _identity(target) or _new_file(target)
        if place in read:
            raise PerfToolError(f"{target}: an input of this run, and inputs are never overwritten; use another file")
        if place in written:
            raise PerfToolError(f"{target}: two outputs cannot be written to the same file")
        if place is not None:
            written.add(place)


@contextmanager
def write_errors_named(target: Path | str) -> Iterator[None]:
    """Turn an OSError while writing into a PerfToolError that names ``target``.

    If the reader of a pipe has exited, it becomes OutputClosedError instead.
    """
    try:
        yield
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        raise PerfToolError(f"{target}: cannot write ({error.strerror or error})") from None


def write_file(blocks: Iterable[bytes], target: Path) -> None:
    """Write ``blocks`` to ``target``. A regular file is replaced once the new one is complete; blocks for a device or a
    pipe are written directly.

    Symbolic links are followed. Raise PerfToolError if the file cannot be written, and OutputClosedError if the
    reader of the pipe has exited.
    """
    with write_errors_named(target):
        mode = target.stat().st_mode if target.exists() else None
        if mode is None or stat.S_ISREG(mode):
            with whole_file(target) as place, open(place, "wb") as file:
                file.writelines(blocks)
            return
        with open(target, "wb", buffering=0) as file:
            for block in blocks:
                file.write(block)


def append_to_file(block: bytes, target: Path) -> None:
    """Append ``block``, which consists of whole lines, to ``target`` in one write, so that lines that other programs
    append do not end up inside it.

    If ``target`` does not end in a newline, one is added first. Raise PerfToolError if the file cannot be written, or
    if only part of the block could be.
    """
    with write_errors_named(target), open(target, "ab", buffering=0) as file:
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_size and not _ends_a_line(target):
            block = b"\n" + block
        if file.write(block) != len(block):
            raise PerfToolError(f"{target}: only part of the lines could be written; the disk may be full")


def _ends_a_line(target: Path) -> bool:
    with open(target, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def gzipped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress ``blocks`` into one gzip stream, without a file name or a time."""
    squeeze = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
    for block in blocks:
        yield squeeze.compress(block)
    yield squeeze.flush()


@contextmanager
def gzip_when_done(target: Path) -> Iterator[Path]:
    """Yield a path for uncompressed data, which is gzipped into ``target`` at the end.

    torch.profiler would compress line by line; compressing large pieces is much faster.
    """
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        plain = Path(folder) / target.name.removesuffix(".gz")
        yield plain
        with open(plain, "rb") as source, open(target, "wb") as packed:
            packed.writelines(gzipped(iter(lambda: source.read(_PIECE_BYTES), b"")))


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path with the same name. Unless an error is raised, its file replaces ``target`` at the end.

    The folder of ``target`` must exist. An existing file keeps its permissions. Raise PerfToolError if ``target`` is
    a device, a pipe or a folder, which cannot be replaced.
    """
    real = Path(os.path.realpath(target))
    if real.exists() and not real.is_file():
        raise PerfToolError(f"{target}: not a regular file, so it cannot be replaced; use another file")
    mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o666 & ~_umask()
    # A temporary folder, because the writer may need more files next to the path.
    with tempfile.TemporaryDirectory(dir=real.parent, prefix=f".{real.name}.") as folder:
        place = Path(folder) / real.name
        yield place
        os.chmod(place, mode)
        os.replace(place, real)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield the path of a folder to create. Unless an error is raised, it becomes ``target`` at the end.

    Raise PerfToolError if ``target`` exists.
    """
    if target.exists():
        raise PerfToolError(f"{target}: the folder already exists; name a new folder")
    with write_errors_named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            place = Path(folder) / target.name
            yield place
            os.replace(place, target)


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode numbers of ``path``, or None if it is not a regular file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _new_file(path: str) -> str | None:
    """Resolve ``path`` to identify a file that does not exist yet. Return None if it exists."""
    return None if os.path.exists(path) else os.path.realpath(path)


def _umask() -> int:
    # Read the mask from /proc if possible. os.umask can only return the mask by setting another mask. Files that other
    # threads of a recorded program create at that moment would get the wrong permissions.
    with suppress(OSError, ValueError, LookupError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    mask = os.umask(0)
    os.umask(mask)
    return mask
