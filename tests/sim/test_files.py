"""The files of a run are reproducible and labelled, and our readers read them like real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sim.runs import Run, run

import perftool
from perftool.engine.analysis import analyze
from perftool.errors import PerfToolError
from perftool.readers.text_input import read
from perftool.sim import simulate
from perftool.sim.machine.write import require_writable

SCRIPT = """
    from torch.utils.data import DataLoader
    model = torch.nn.Linear(8, 8).to("hpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.ones(12, 8), batch_size=4, num_workers=2):
        loss = torch.digamma(model(batch.to("hpu")) + 9).sum()
        loss.backward()
        htcore.mark_step()
        optimizer.step()
        optimizer.zero_grad()
        htcore.mark_step()
        loss.item()
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("run"), SCRIPT)


def test_two_runs_are_equal_to_the_byte(done: Run, tmp_path: Path) -> None:
    again = run(tmp_path, SCRIPT).done
    for one, other in ((done.done.trace, again.trace), (done.done.log, again.log), (done.done.metrics, again.metrics)):
        assert one.read_bytes() == other.read_bytes()


def test_a_compressed_trace_has_the_same_content(done: Run, tmp_path: Path) -> None:
    import gzip

    script = tmp_path / "script.py"
    script.write_text(done.done.trace.with_name("script.py").read_text())
    packed = simulate(script, output=tmp_path / "deep" / "run.json.gz", skip_steps=0)
    assert gzip.decompress(packed.trace.read_bytes()) == done.done.trace.read_bytes()
    assert (packed.log.name, packed.metrics.name) == ("run.log", "run.metrics.json")


def test_calls_of_the_script_have_its_line(done: Run) -> None:
    stacks = {
        event["name"]: event["args"]["Call stack"]
        for event in done.top["traceEvents"]
        if "Call stack" in event.get("args", {})
    }
    text = done.done.trace.with_name("script.py").read_text().splitlines()
    wanted = {"aten::item": "loss.item()", "aten::digamma": "digamma", "Optimizer.step#AdamW.step": "optimizer.step()"}

    assert not any(name.startswith("ProfilerStep") for name in stacks)
    for name, source in wanted.items():
        line = next(number for number, code in enumerate(text, 1) if source in code)
        assert stacks[name] == f"script.py({line}): <module>"


def test_every_file_is_labelled_as_simulated(done: Run) -> None:
    assert done.top["simulated"]["note"].startswith("simulated")
    assert done.top["deviceProperties"] == [{"name": "GAUDI2", "simulated": True, "totalGlobalMem": 103_079_215_104}]
    assert done.log.startswith("simulated by habana_perf_tool")
    report = analyze([str(done.done.trace)], logs=[str(done.done.log), str(done.done.metrics)])
    assert (report.device.type, report.device.name) == ("hpu", "GAUDI2")
    assert [issue.message for issue in report.inputs[0].issues] == ["simulated, not recorded on a device"]
    assert "TRC101" not in {finding.code for finding in report.findings}


def test_the_tables_contain_the_simulated_events(done: Run) -> None:
    with perftool.open_trace(done.done.trace, logs=[done.done.log, done.done.metrics]) as store:

        def rows(name: str) -> list[dict[str, Any]]:
            return [dict(row) for row in store.frame(name).astype(object).to_dict("records")]

        assert [row["step"] for row in rows("steps")] == [0, 1, 2]
        assert {row["set_aside"] for row in rows("device_ops")} == {None}
        facts = [[row[key] for key in ("op", "count", "traced", "registered")] for row in rows("fallbacks")]
        assert sorted(facts) == [["aten::digamma", 3, 3, False], ["aten::polygamma", 3, 3, False]]
        assert {row["kind"] for row in rows("syncs")} >= {"scalar_read"}
        assert (
            len([row for row in rows("copies") if row["direction"] == "host_to_device"]) == 2 + 3 + 6
        )  # parameters, batches, and results of fallbacks
        assert len(rows("dataloader")) == 4
        assert [row["class"] for row in rows("optimizer_steps")] == ["AdamW"] * 3
        recipes = [row["name"] for row in rows("recipes")]
        assert all(name.startswith(".graph_dumps/HabanaFusedOpLazy_") for name in recipes)
        assert len(recipes) == done.metrics["graph_compilation"]["TotalNumber"] == done.done.compilations


def test_the_log_and_the_metrics_are_read_completely(done: Run) -> None:
    log, metrics = read(str(done.done.log)), read(str(done.done.metrics))
    assert (log.kind, log.issues, sum(each.count for each in log.fallbacks if each.op == "aten::digamma")) == (
        "runtime_log",
        (),
        9,
    )  # each of three executions has a line, a graph cut and a row of the table
    assert {entry.key: entry.value for entry in log.config}["PT_HPU_LAZY_MODE"] == "1"
    assert (metrics.kind, metrics.issues) == ("metrics", ())


def test_a_simulation_is_not_written_over_its_script(tmp_path: Path) -> None:
    script = tmp_path / "train.json"
    script.write_text("print('mine')")
    with pytest.raises(PerfToolError, match=": an input of this run"):
        simulate(script, output=script)
    assert script.read_text() == "print('mine')"


def test_a_link_to_a_file_that_does_not_exist_yet_is_kept(tmp_path: Path) -> None:
    link, target = tmp_path / "out.json.gz", tmp_path / "other" / "out.json.gz"
    target.parent.mkdir()
    link.symlink_to(target)
    require_writable(link)
    assert (link.is_symlink(), target.exists()) == (True, False)
