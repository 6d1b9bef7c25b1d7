"""Chooses among the benchmark results and the metrics pages of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perftool.model.serving import ClientResult, MetricsPage, ServingNumber

_TIME = "_ms"


def chosen_result(results: Sequence[ClientResult]) -> ClientResult | None:
    """Return the result with the most requests, because smaller results are warm-ups. If several have the same number
    of requests, exact results win over printed ones, and later results over earlier ones.
    """
    return max(reversed(results), key=lambda one: (one.requests, one.exact), default=None)


def server_numbers(pages: Iterable[MetricsPage]) -> Iterator[ServingNumber]:
    """Yield the numbers between the server's first and last page, or since its start if there is only one page."""
    used = first_and_last(pages)
    if used is None:
        return
    first, last = used
    before = first.totals if first is not last else {}
    grown = {name: value - before.get(name, 0) for name, value in last.totals.items()}
    for name, value in grown.items():
        if name.endswith(_TIME):
            if value >= 0 and grown[f"{name} count"] >= 1:
                yield ServingNumber(name, "mean", value / grown[f"{name} count"])
        elif value >= 0 and not name.endswith(" count"):
            yield ServingNumber(name, "total", value)


def first_and_last(pages: Iterable[MetricsPage]) -> tuple[MetricsPage, MetricsPage] | None:
    """Return the pages that are used, or None if there is no page. The last page is the one with the most output
    tokens. Pages that cannot precede it come from another server, or the server was restarted between them.
    """
    # Between two pages, a server may have only read prompts.
    ordered = sorted(pages, key=lambda page: (page.totals.get("output_tokens", 0), sum(page.totals.values())))
    if not ordered:
        return None
    last = ordered[-1]
    return next(page for page in ordered if page.may_precede(last)), last
