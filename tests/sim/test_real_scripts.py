"""Tiny but realistic scripts with random weights compute the same values as on a CPU and behave as on a Gaudi.

``scripts/models.toml`` contains models that share a loop. ``scripts/scripts.toml`` lists what to expect from the
scripts in the folders next to it, with reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
from sim.runs import Run

from perftool.model.hpu_bridge import hpu_bridge
from perftool.sim import simulate

HERE = Path(__file__).parent / "scripts"
LOOP = """
import sys
import torch
import habana_frameworks.torch.core as htcore
torch.manual_seed(0)
{model}
device = sys.argv[1]
model = model.to(device).train()
{batch}
batch = {{name: each.to(device) for name, each in batch.items()}}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = {loss}
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    optimizer.zero_grad()
    htcore.mark_step()
    print("value", loss.item())
"""
TEXT = "batch = {'input_ids': torch.randint(0, 64, (2, 12))}\nbatch['labels'] = batch['input_ids']"


def expectations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every script by name, with its text or path and its expected behaviour."""
    models = tomli.loads((HERE / "models.toml").read_text())
    loop = models.pop("loop")
    for name, entry in models.items():
        text = LOOP.format(
            model=entry["model"], batch=entry.get("batch", TEXT), loss=entry.get("loss", "model(**batch).loss")
        )
        yield name, {**loop, **entry, "cuts": loop["cuts"] | entry.get("cuts", {}), "text": text}
    yield from tomli.loads((HERE / "scripts.toml").read_text()).items()


EXPECTED = dict(expectations())


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_values_cuts_fallbacks_and_compilations(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    pytest.importorskip("transformers")
    entry = EXPECTED[name]
    script = HERE / f"{name}.py"
    if "text" in entry:
        script = tmp_path / "script.py"
        script.write_text(entry["text"])

    here = Run(simulate(script, ["hpu"], output=tmp_path / "hpu.json", skip_steps=0))
    values = printed(capsys)
    there = simulate(script, ["cpu"], output=tmp_path / "cpu.json", skip_steps=0)

    assert (here.done.exit_code, there.exit_code) == (0, 0)
    assert values
    assert values == pytest.approx(printed(capsys), rel=entry.get("tolerance", 1e-4), abs=1e-6)
    assert (cuts(here), fallbacks(here), here.done.compilations) == (
        counts(entry["cuts"]), counts(entry["fallbacks"]), entry["compilations"][0],
    )  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_every_expectation_has_a_reason(name: str) -> None:
    entry = EXPECTED[name]
    counted = [*entry["cuts"].values(), *entry["fallbacks"].values(), entry["compilations"]]

    assert all(count >= 0 and why for count, why in counted)
    assert {reason.split(" aten::")[0] for reason in entry["cuts"]} <= hpu_bridge().cuts
    assert "text" in entry or (HERE / f"{name}.py").is_file()


def test_every_script_has_expectations() -> None:
    there = {str(path.relative_to(HERE).with_suffix("")) for path in HERE.rglob("*.py")}

    assert there == {name for name, entry in EXPECTED.items() if "text" not in entry}
    assert len(EXPECTED) >= 34


def printed(capsys: pytest.CaptureFixture[str]) -> list[float]:
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("value ")]
    return [float(each) for line in lines for each in line.split()[1:]]


def cuts(done: Run) -> Counter[str]:
    return Counter(
        line.split("step marker due to ")[1] for line in done.log.splitlines() if "step marker due to" in line
    )


def fallbacks(done: Run) -> Counter[str]:
    return Counter(done.metrics["cpu_fallback"]["FallbackOps"])


def counts(expected: dict[str, Any]) -> Counter[str]:
    return Counter({name: count for name, (count, _) in expected.items()})
