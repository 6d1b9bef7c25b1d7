"""Finds the commands shown in README.md and in the pages of docs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```(?:bash|sh|console)\n(.*?)```", re.DOTALL)
_CALL = re.compile(r"\s*(?:\$ )?(?:\S+=\S+ )*habana_perf_tool (.*)")


def shown_commands() -> list[tuple[str, list[str]]]:
    """Return every call of the program in a shell block, fenced or indented, with the name of its page."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        indented = [line for line in text.splitlines() if re.match(r" {4}\S", line)]
        for line in "\n".join([*_BLOCK.findall(text), *indented]).replace("\\\n", " ").splitlines():
            call = _CALL.match(line)
            if call and "..." not in call[1]:
                words = shlex.split(re.split(r"\s[|>&]+\s?", call[1])[0], comments=True)
                found.append((page.name, words))
    return found
