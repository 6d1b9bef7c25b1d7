"""The scripts inside the page, and the security policy that lets the browser run nothing else."""

from __future__ import annotations

import base64
import zlib
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from perftool.reporters.html.environment import asset

# Forbids network access, and all scripts except the page's own (by its hash) and plotly, which it unpacks into a blob.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {}; "
    "base-uri 'none'; form-action 'none'"
)


def page_script() -> str:
    """Return the script that makes the page interactive."""
    return asset("report.js")


def policy(script: str | None) -> str:
    """Return the content security policy of a page with this ``script``, or of a page without scripts if it is None."""
    if script is None:
        return _POLICY.format("'none'")
    digest = base64.b64encode(sha256(script.encode("utf-8")).digest()).decode()
    return _POLICY.format(f"'sha256-{digest}' blob:")


def packed_plotly() -> str | None:
    """Return plotly.js as zlib data in base64, which browsers can inflate, or None if plotly is not installed."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode() if path.is_file() else None
