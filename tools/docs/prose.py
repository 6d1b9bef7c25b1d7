"""Checks the prose of the README and the documentation with some of proselint's checks and with our own, from
``words.toml``.

Code is not checked. Correct a fault in a generated page at its source. Exits with 1 if a check finds a fault.
"""

from __future__ import annotations

import re
from pathlib import Path

import tomli
from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, types
from proselint.registry.checks.engine import Fancy, Padding, RegexOptions
from proselint.tools import LintFile

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKS = dict.fromkeys(("house", "cliches", "hedging", "nonwords", "redundancy"), True)
# Sentences that start with a clause instead of a noun ("Who asks ..."), and inverted sentences ("Of the ranks, ...").
STARTS = {
    r"(?:^|[.:;] )(?:Who|What) (?:asks|answers|reads|waits|wants|is none|lies|stands|comes)\b": "start with a noun",
    r"(?:^|[.:;] )Of (?:an?|the|each|all|these) \w+(?: \w+){0,5},? ": "start with the subject",
}
CODE = re.compile(r"^```.*?^```|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)


def house_checks() -> tuple[Check, ...]:
    """Return a check for each entry of ``words.toml`` and ``STARTS``."""
    words = tomli.loads((HERE / "words.toml").read_text(encoding="utf-8"))
    padded = [(rf"\b{pattern}\b", advice, True) for pattern, advice in words.items()]
    starts = [(pattern, advice, False) for pattern, advice in STARTS.items()]
    return tuple(
        Check(
            check_type=types.Existence(items=(pattern,), padding=Padding.RAW),
            engine=Fancy(RegexOptions(case_insensitive=any_case, multi_line=True)),
            path=f"house.{number}",
            message=f"'{{}}': {advice}",
        )
        for number, (pattern, advice, any_case) in enumerate([*padded, *starts])
    )


def prose(page: Path) -> str:
    """Return the text of a page with its code blanked out, which keeps offsets valid."""
    text = page.read_text(encoding="utf-8")
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def main() -> int:
    """Print each fault with its position."""
    registry = CheckRegistry()
    registry.register_many((*__register__, *house_checks()))
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    found = 0
    for page in pages:
        for fault in LintFile(page, prose(page)).lint({"max_errors": 1000, "checks": CHECKS}):
            line, column = fault.pos
            print(f"{page.relative_to(ROOT)}:{line}:{column}: {fault.check_result.message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
