"""The device that the user specifies for a trace: by a name in devices.toml, or by a file with the device's peaks."""

from __future__ import annotations

import os
from pathlib import Path

from perftool.errors import InputError
from perftool.model.devices import DeviceFacts, device_named, device_of_text, known_devices
from perftool.model.inputs import ReadingKind
from perftool.model.records import LogReading
from perftool.readers.files.small_file import read_small
from perftool.store.readings import Reading

_KIND: ReadingKind = "device"
_ENDING = ".toml"


def requested_device(text: str) -> Reading:
    """Find the device that ``text`` names, and return its facts as an input. Raise InputError if there is no such
    device."""
    facts = find_requested(text)
    size = os.path.getsize(text) if os.path.isfile(text) else 0
    return Reading(text, size, LogReading(device=facts, kind=_KIND))


def find_requested(text: str) -> DeviceFacts:
    """Return the device called ``text``, or described in the file ``text`` (*.toml). Raise InputError if there is
    none.
    """
    if text.endswith(_ENDING):
        return read_device(text)
    if (found := device_named(text)) is None:
        known = ", ".join(device.name for device in known_devices())
        raise InputError(f"device {text!r} is unknown; use one of {known}, or a peaks file (*.toml)")
    return found


def read_device(path: str) -> DeviceFacts:
    """Read a user's description of a device. Raise InputError if the file is not valid."""
    try:
        text = read_small(Path(path)).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a valid peaks file: {getattr(error, 'strerror', None) or error}") from None
    return device_of_text(text, path)
