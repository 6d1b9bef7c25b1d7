"""Scripts written for a Gaudi, run unedited where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRAINING = """
import sys
import torch
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu as hpu
from habana_frameworks.torch.hpex.kernels import FusedSDPA, RotaryPosEmbeddingHelperV2 as FusedRoPE
from habana_frameworks.torch.hpex.normalization import FusedClipNorm, FusedRMSNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from habana_frameworks.torch.hpu import wrap_in_hpu_graph

assert hpu.is_available() and torch.hpu.device_count() == 1
torch.manual_seed(0)
device = torch.device("hpu")
model = torch.nn.Linear(8, 8).to(device)
optimizer, clip = FusedAdamW(model.parameters(), lr=0.01), FusedClipNorm(model.parameters(), 1.0)
x = torch.randn(2, 1, 4, 8, device="hpu")
gamma = torch.ones(8, device="hpu:0")
tables = [torch.ones(1, 1, 16, 8).to("hpu") for _ in range(2)]
losses = []
for _ in range(3):
    optimizer.zero_grad()
    with torch.autocast(device_type="hpu", dtype=torch.bfloat16):
        h = model(FusedRMSNorm.apply(x, gamma, 1e-6))
    h = FusedRoPE.apply(h, *tables, torch.arange(4).expand(2, 4).to(device))
    loss = FusedSDPA.apply(h, h, h, None, 0.0, True).float().square().mean()
    loss.backward()
    htcore.mark_step()
    clip.clip_norm(model.parameters())
    optimizer.step()
    htcore.mark_step()
    losses.append(loss.item())
assert losses[2] < losses[0], losses
experts = [torch.eye(8) for _ in range(2)]
table = torch.zeros(3, 1, dtype=torch.int64)
out = torch.ops.hpu.mixture_of_experts(
    torch.ones(3, 8), table, torch.ones(3, 1), experts, experts, experts, True, "relu", 0, 1
)
assert out.shape == (3, 8)
hpu.synchronize()
print("trained", sys.argv[1:], __name__, str(model.weight.device).split(":")[0] in ("cpu", "cuda"))
"""


def run(tmp_path, text, *arguments):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "perftool.fused", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)


def test_a_training_script_runs_unedited(tmp_path):
    done = run(tmp_path, TRAINING, "--epochs", "1")
    assert done.stderr == ""
    assert done.stdout == "trained ['--epochs', '1'] __main__ True\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "from habana_frameworks.torch.hpex.optimizers import MarkstepAdam",
            "perftool.fused does not provide habana_frameworks.torch.hpex.optimizers.MarkstepAdam; it has",
        ),
        (
            "import habana_frameworks.torch as ht; ht.hpu.memory_stats()",
            "perftool.fused does not provide habana_frameworks.torch.hpu.memory_stats; it has",
        ),
        ("import habana_frameworks.torch.dynamo", "No module named 'habana_frameworks.torch.dynamo'"),
    ],
)
def test_unknown_names_say_so(tmp_path, line, said):
    done = run(tmp_path, line)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


def test_a_script_finds_its_neighbours_and_keeps_its_exit_code(tmp_path):
    (tmp_path / "neighbour.py").write_text("CODE = 7\n")
    assert run(tmp_path, "import sys, neighbour; sys.exit(neighbour.CODE)").returncode == 7


def test_no_script_is_one_sentence(tmp_path):
    for arguments, code in (([], 2), (["--help"], 0), (["missing.py"], 2)):
        command = [sys.executable, "-m", "perftool.fused", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == code
        assert len((done.stdout + done.stderr).splitlines()) == 1


def test_installing_twice_does_nothing_more(tmp_path):
    text = """
import perftool.fused
for _ in range(2):
    perftool.fused.install()
import torch
print(torch.zeros(1, device="hpu").device.type, torch.zeros(1).to("hpu:0").device.type)
print(torch.ones(2).hpu().sum().item())
with torch.device("hpu"):
    print(torch.zeros(1).device.type)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
    found = done.stdout.split()
    assert set(found) - {"2.0"} <= {"cpu", "cuda"}
    assert len(found) == 4
