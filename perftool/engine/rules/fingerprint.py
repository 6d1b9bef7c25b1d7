"""Identifies a finding across runs of the same program."""

from __future__ import annotations

import hashlib
import re

# Folders differ between machines, so only the file name is kept.
_FOLDERS = re.compile(r"(?<!\w)(?:[A-Za-z]:)?(?:[\\/][^\\/\s:,()'\"<>]+)*[\\/](?=[^\\/\s:,()'\"<>]+)")
# Patterns for text that changes between runs, and their replacements, which are applied in this order.
_VOLATILE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"\b(pid|tid|rank|step|iter|stream|thread|node|worker|host)([-_ :=#]*)\d+", re.I), r"\1\2#"),
    # Hashes in the names of generated kernels and graphs.
    (re.compile(r"(?<![A-Za-z0-9])(?=[a-z]*\d)[0-9a-f]{6,}(?![A-Za-z0-9])"), "#"),
    (re.compile(r"(?<![A-Za-z0-9])[a-z0-9]{32,}(?![A-Za-z0-9])"), "#"),
    # Counters and sizes, but not digits in a word such as conv2d or fwd_f32.
    (re.compile(r"(?<![A-Za-z0-9])\d+(?:\.\d+)?(?![A-Za-z])"), "#"),
)
# The endings of the names of inputs. Their numbers count: a user who accepts damage in rank 0's file has not accepted
# it in rank 1's.
_INPUTS = tuple(
    f".{name}{packed}"
    for name in ("json", "jsonl", "csv", "log", "txt", "prom", "hltv", "part")
    for packed in ("", ".gz", ".zst")
)
_BETWEEN_NAMES = re.compile(r"([\s/\\:,()]+)")
# PyTorch's own name for a trace: host, process, time.
_KINETO_NAME = re.compile(r".+_\d+\.\d+(\.pt\.trace\.json(?:\.gz)?)", re.DOTALL)


def normalised(subject: str) -> str:
    """Replace addresses, hashes, counters, ranks, pids and the like in ``subject`` by ``#``, and remove folders. Names
    of inputs stay, except those that PyTorch chose."""
    done, before = "", ""
    for word in _BETWEEN_NAMES.split(_FOLDERS.sub("", subject)):
        if word.lower().endswith(_INPUTS):
            done, before = f"{done}{_without_volatile(before)}{_stable_name(word)}", ""
        else:
            before += word
    return done + _without_volatile(before)


def _without_volatile(text: str) -> str:
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def _stable_name(name: str) -> str:
    """Return the ``name`` of a file, without the host, process and time in a name that PyTorch chose."""
    found = _KINETO_NAME.fullmatch(name)
    return f"*{found[1]}" if found else name


def normalised_file(file: str) -> str:
    """Return ``file`` with forward slashes, and with a stable name."""
    folder, slash, name = file.replace("\\", "/").rpartition("/")
    return f"{folder}{slash}{_stable_name(name)}"


def fingerprint(code: str, subject: str, file: str | None = None) -> str:
    """Return the identity of a finding across runs of the same program: 16 hexadecimal digits.

    ``file`` is the path of the trace relative to the project root. Times, numbers and messages are left out, because
    they differ between runs.
    """
    place = "" if file is None else f"\n{normalised_file(file)}"
    return hashlib.sha256(f"{code}\n{normalised(subject)}{place}".encode()).hexdigest()[:16]
