"""What fills the memory, in the terminal and in the HTML report."""

from __future__ import annotations

import io

from builders.reports import analysed
from events import instant, kernel, step, x
from rich.console import Console

from perftool.model.report import Report
from perftool.reporters.html.charts import memory_steps_chart
from perftool.reporters.html.page import render_html
from perftool.reporters.terminal.full import print_full

MIB = 1 << 20
EVENTS = [
    step(1, 0, 100), step(2, 100, 100), kernel("k", 10, 20), x("aten::mm", 5, 20),
    instant("[memory]", 10, **{"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 30 * MIB,
                               "Total Allocated": 40 * MIB, "Total Reserved": 64 * MIB}),
    instant("[memory]", 150, **{"Device Type": 1, "Device Id": 0, "Addr": 2, "Bytes": -MIB,
                                "Total Allocated": 39 * MIB, "Total Reserved": 64 * MIB}),
]  # fmt: skip


def full(report: Report) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    print_full(report, console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_full_text_shows_what_is_alive_at_the_peak() -> None:
    report, _ = analysed(EVENTS)

    lines = full(report)
    title = "What fills the memory at its peak (device 0): 40.0 MiB allocated, 64.0 MiB reserved"
    assert [line.split() for line in lines[lines.index(title) + 1 :][:3]] == [
        ["use", "bytes", "share", "blocks", "allocated", "by"], ["kept", "30.0", "MiB", "75.0", "%", "1", "mm"],
        ["before", "the", "recording", "10.0", "MiB", "25.0", "%"],
    ]  # fmt: skip


def test_blocks_larger_than_a_damaged_total_count_as_all_of_it() -> None:
    wrong = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 30 * MIB, "Total Allocated": 0, "Total Reserved": 0}
    report, pictures = analysed([*EVENTS[:4], instant("[memory]", 10, **wrong)])

    assert [(use.bytes, use.allocated) for use in report.memory] == [(30 * MIB, 30 * MIB)]
    assert b"100.0" in render_html(report, pictures)


def test_without_memory_events_memory_is_not_mentioned() -> None:
    report, pictures = analysed([step(1, 0, 100), kernel("k", 10, 20)])

    assert not any("What fills" in line for line in full(report))
    assert b'id="memory"' not in render_html(report, pictures)


def test_the_page_draws_the_peak_of_each_step_by_kind() -> None:
    report, pictures = analysed(EVENTS)
    chart = memory_steps_chart(pictures.memory_steps[0], several=False)

    assert [(layer.kind, layer.label) for layer in chart.layers] == [
        ("kept", "kept"), ("before_recording", "before the recording")
    ]  # fmt: skip
    assert [tick.label for tick in chart.y] == ["0", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]
    assert chart.live["series"][0]["y"] == [30.0, 30.0]
    assert b'data-chart="memory-steps-0"' in render_html(report, pictures, interactive=False)


def test_memory_of_the_host_counts_from_the_beginning_of_the_recording() -> None:
    on_host = {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 30 * MIB, "Total Allocated": 30 * MIB}
    report, pictures = analysed([step(1, 0, 100), x("aten::mm", 5, 20), instant("[memory]", 10, **on_host)])

    title = "What fills the memory at its peak (host memory): 30.0 MiB allocated since the recording began"
    assert title in full(report)
    assert b"30.0 MiB allocated since the recording began</h3>" in render_html(report, pictures)
