"""Gaudi scripts run unchanged on machines without a Gaudi."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perftool.fused.__main__ import main
from perftool.fused.porting import script
from perftool.fused.porting.bridge import modules, not_provided, ranks_of_launcher
from perftool.fused.porting.device_remap import _backend

SCRIPTS = Path(__file__).parent / "gaudi_scripts"
LAST_LINES = {
    "bert_pretraining": "trained 0 1",
    "detection_ema": "averaged 2006 [0.0] True True",
    "lightning_autoencoder": "fitted 12",
    "llama": "generated (1, 12)",
    "mixtral": "routed (2, 5, 16) True",
    "resnet_lars": "trained True True",
}
IN_TURN = """
import contextlib, io, json, sys, traceback
from perftool import fused
fused.install("cpu")
fused.install()
from perftool.fused.porting.script import run_script
said = {}
for path in sys.argv[1:]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            run_script(path, ["--epochs", "6"] if "resnet" in path else [])
        except BaseException:
            traceback.print_exc(file=text)
    said[path] = text.getvalue()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    """The output of each script. All scripts run in one process, because importing torch takes longer than they do."""
    paths = sorted(map(str, SCRIPTS.glob("*.py")))
    done = subprocess.run([sys.executable, "-c", IN_TURN, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {Path(path).stem: text for path, text in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("name", LAST_LINES)
def test_a_script_runs_unedited(said, name):
    if "lightning" in name:
        pytest.importorskip("pytorch_lightning")
    assert said[name].splitlines()[-1] == LAST_LINES[name], said[name]


@pytest.mark.parametrize(
    "line",
    [
        "main __main__ None True []",
        "classes True True False",
        "generation False",
        "loaded 2.0 2.0 2.0 2.0 2.0",
        "default True",
        "block True",
        "autocast torch.bfloat16 True",
        "autocast True torch.bfloat16",
        "profiled True",
        "stream 2.0 True",
        "random True True",
        "hasattr False False False",
        f"refused ImportError {not_provided('habana_frameworks.torch.hpex.kernels.PySDPA')}",
        f"refused ImportError {not_provided('habana_frameworks.torch.dynamo')}",
        f"refused AttributeError {not_provided('habana_frameworks.torch.hpu.utilization')}",
        f"refused AttributeError {not_provided('torch.ops.hpu.fused_norm')}",
        "backward [2.0, 2.0] 2.0 2.0 True",
        "captured 2.0 2.0 2.0",
        "rotary [1.0, 1.0, -1.0, 1.0]",
        "spawned True True",
    ],
)
def test_calls_of_scripts_to_torch_and_the_bridge_work(said, line):
    assert line in said["odds_and_ends"].splitlines(), said["odds_and_ends"]


def test_a_failing_script_shows_its_own_traceback_and_exit_code(tmp_path):
    (tmp_path / "neighbour.py").write_text("ROWS = 3\n")
    text = """
import sys
import torch
import habana_frameworks.torch.core
from neighbour import ROWS
print(sys.argv, __file__, sys.path[0])
def turn(x):
    return x.view(ROWS)
turn(torch.zeros(2, device="hpu"))
"""
    path = tmp_path / "train.py"
    path.write_text(text)
    command = [sys.executable, "-m", "perftool.fused", str(path), "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path.parent)
    assert done.returncode == 1
    assert done.stdout == f"{[str(path), '--epochs', '1']} {path} {tmp_path}\n"
    shown = [line.strip() for line in done.stderr.splitlines() if "^" not in line]
    assert shown == [
        "Traceback (most recent call last):",
        f'File "{path}", line 9, in <module>',
        'turn(torch.zeros(2, device="hpu"))',
        f'File "{path}", line 8, in turn',
        "return x.view(ROWS)",
        "RuntimeError: shape '[3]' is invalid for input of size 2",
    ]


@pytest.fixture
def own_main(monkeypatch):
    """Undo the side effects of running a script."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def test_a_module_has_its_package_and_keeps_its_exit_code(tmp_path, own_main, monkeypatch, capsys):
    package = tmp_path / "ported_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("CODE = 7\n")
    (package / "train.py").write_text(
        "import sys\nfrom .other import CODE\nprint(__name__, __package__, sys.argv)\nsys.exit(CODE)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as stop:
        script.run_module("ported_package.train", ["--fast"])
    assert stop.value.code == 7
    assert capsys.readouterr().out == f"__main__ ported_package {[str(package / 'train.py'), '--fast']}\n"


def test_a_script_that_is_not_python_gives_a_syntax_error(tmp_path, own_main):
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    with pytest.raises(SyntaxError) as error:
        script.run_script(str(path), [])
    assert error.value.filename == str(path)
    assert script._shortened(error.value, error.value.__traceback__.tb_next) is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "usage: python -m perftool.fused SCRIPT"),
        (["-m"], 2, "usage: python -m perftool.fused SCRIPT"),
        (["--help"], 0, "usage: python -m perftool.fused SCRIPT"),
        (["missing.py"], 2, "There is no script missing.py."),
    ],
)
def test_a_missing_script_gives_one_sentence(arguments, code, said, capsys):
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert (printed.out + printed.err).startswith(said)
    assert len((printed.out + printed.err).splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "own", "device", "backend"),
    [
        ("hccl", "gloo", "cpu", "gloo"),
        ("cpu:gloo,hpu:hccl", "gloo", "cpu", "cpu:gloo"),
        ("cpu:gloo,hpu:hccl", "nccl", "cuda", "cpu:gloo,cuda:nccl"),
        ("nccl", "gloo", "cpu", "nccl"),
        (None, "gloo", "cpu", None),
    ],
)
def test_groups_of_gaudis_library_are_those_of_the_device(given, own, device, backend):
    assert _backend(given, own, device) == backend


def test_ranks_come_from_the_arguments_or_the_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert ranks_of_launcher() == (1, 0, 0)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert ranks_of_launcher(local_rank=1) == (4, 3, 1)


def test_closures_are_called_once_at_the_next_mark_step():
    core, called = modules("cpu")["habana_frameworks.torch.core"], []
    core.step_closure.add_step_closure(lambda *args: called.append(args), args=(1, 2))
    assert called == []
    core.mark_step()
    core.mark_step()
    assert called == [(1, 2)]


def test_a_script_finds_the_same_names_on_cuda_as_on_the_host():
    host, cuda = (
        {name: set(vars(module)) for name, module in modules(device).items() if ".hpu" in name}
        for device in ("cpu", "cuda")
    )
    assert cuda == host
    assert "habana_frameworks.torch.gpu_migration" in set(modules("cuda")) - set(modules("cpu"))
