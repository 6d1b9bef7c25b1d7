"""Formats text about chains (repeated sequences of kernels), shared by the text report and the HTML page."""

from __future__ import annotations

import re

from perftool.model.chains import Chain, ChainPlace
from perftool.units import format_count, format_ns, format_ratio


def chain_title(chain: Chain, device: str = "device", word: str = "step") -> str:
    """Build a heading with the number of kernels (on a CPU, ops), their repeats and their time. ``word`` is the run's
    word for a step."""
    what = "ops" if device == "CPU" else "kernels"
    return (
        f"A sequence of {format_count(len(chain.places))} {what} runs {format_count(chain.repeats)} times in a row: "
        f"{format_ns(chain.ns)} each time, {format_ratio(chain.step_share)} of the {what[:-1]} time of a typical {word}"
    )


def kernel_text(place: ChainPlace) -> str:
    """Strip the return type, template arguments and parameters from a kernel's name."""
    return re.sub(r"^void |\(anonymous namespace\)::|[<(].*$", "", place.kernel)
