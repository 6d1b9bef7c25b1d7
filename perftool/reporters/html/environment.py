"""The template engine, which escapes every value from a trace."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from perftool.model.cut_text import cut_text
from perftool.model.links import cause_url
from perftool.model.unmodelled import why_no_model
from perftool.model.words import kind_label
from perftool.reporters.chains import chain_title, kernel_text
from perftool.reporters.efficiency import shapes_text, share_text
from perftool.reporters.escape import json_text, one_line
from perftool.reporters.labels import format_metric
from perftool.reporters.modules import module_label
from perftool.reporters.verdict import amount_text, gain_text
from perftool.reporters.waiting import waiting_text
from perftool.units import format_bytes, format_count, format_ns, format_ratio

HERE = Path(__file__).parent
# Longer names are cut to keep the tables readable.
_LONGEST_NAME = 160


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the Jinja environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, finalize=_visible,
    )  # fmt: skip
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    made.filters.update(
        ns=format_ns, bytes=format_bytes, count=format_count, ratio=format_ratio, metric=format_metric, kind=kind_label,
        code=_code, short=_short, css=_class_name, prose=_prose, sentence=_sentence,
        unbroken=_unbroken, amount=amount_text, gain=gain_text, shapes=shapes_text, best=share_text,
        why_no_model=why_no_model, cause_url=cause_url, capital=_capital, chain_title=chain_title, kernel=kernel_text,
        waiting=waiting_text, module_label=module_label,
    )  # fmt: skip
    return made


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def asset(name: str) -> str:
    """Read a file in ``static``."""
    return (HERE / "static" / name).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    """Escape control characters in text, including those that reverse the text direction."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return one_line(value)
    return value


def _code(text: str) -> Markup:
    """Format source code: keep its lines, and highlight comments."""
    lines = []
    for line in json_text(text).strip("\n").split("\n"):
        shown = Markup.escape(one_line(line.replace("\t", "    ")))
        lines.append(Markup('<span class="remark">{}</span>').format(shown) if line.lstrip().startswith("#") else shown)
    return Markup("\n").join(lines)


def _prose(text: str) -> str:
    """Join wrapped lines into one."""
    return " ".join(text.split())


def _sentence(text: str) -> str:
    """Put ``text`` on one line, and capitalise its first letter unless it starts with a name from the trace."""
    prose = _prose(text)
    first = prose.split(" ", 1)[0]
    return prose[:1].upper() + prose[1:] if first.isalpha() and first.islower() else prose


def _unbroken(text: str) -> str:
    """Put no-break spaces between numbers and units."""
    return re.sub(r"(\d) (%|[num]?s\b|[KMGT]iB\b)", "\\1\N{NO-BREAK SPACE}\\2", text)


def _short(name: str | None) -> str:
    if name is None:
        return "(no name)"
    return cut_text(name, _LONGEST_NAME)


def _class_name(kind: str) -> str:
    """Turn a kind into a part of a CSS class name."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in kind)
