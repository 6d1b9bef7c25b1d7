"""What mkdocs needs besides ``docs/``: pages of other folders, and links that lead to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*.md"))
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", *BENCHMARKS)
# In the repository these pages lie beside `docs`, on the site inside it.
_UP = re.compile(r"(\]\()\.\./(?=[^)]+\.md)")
_INTO_DOCS = re.compile(r"(\]\()((?:\.\./)*)docs/")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages outside ``docs``."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links between ``docs`` and the rest of the repository to where the pages are on the site."""
    if page.file.src_uri in OUTSIDE:
        return _INTO_DOCS.sub(r"\1\2", markdown)
    return _UP.sub(r"\1", markdown)
