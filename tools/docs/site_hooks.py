"""mkdocs hooks: adds pages from outside ``docs/``, and adjusts links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*.md"))
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", *BENCHMARKS)
_INTO_DOCS = re.compile(r"(\]\()((?:\.\./)*)docs/")


def on_config(config: Any) -> Any:
    """List the page of each rule under the page of all rules."""
    pages = sorted((ROOT / "docs" / "rules").glob("*.md"))
    titles = {page.stem: page.read_text(encoding="utf-8").split("\n# ", 1)[1].split("\n", 1)[0] for page in pages}
    listed = [{title: f"rules/{code}.md"} for code, title in titles.items()]
    for section in config["nav"]:
        for entries in section.values():
            for entry in entries:
                if entry.get("Rules") == "rules.md":
                    entry["Rules"] = [{"All rules": "rules.md"}, *listed]
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages outside ``docs``."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links between ``docs`` and the rest of the repository to where the pages are on the site."""
    if page.file.src_uri in OUTSIDE:
        return _INTO_DOCS.sub(r"\1\2", markdown)
    # In the repository, these pages are next to `docs`; on the site, they are inside it.
    inside = "../" * page.file.src_uri.count("/")
    return re.sub(rf"(\]\(){re.escape(inside)}\.\./(?=[^)]+\.md)", rf"\1{inside}", markdown)
