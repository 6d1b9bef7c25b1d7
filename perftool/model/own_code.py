"""Finds the user's own lines in a recorded stack."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from itertools import pairwise

# Folders of installed packages.
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
# Folders into which pip installs commands.
_COMMANDS = {"bin", "Scripts"}
# Folders to which torch.compile writes code.
_GENERATED = "torchinductor_"
_PYTHON = re.compile(r"python\d(\.\d+)?t?")
# Packages whose code is not the user's own. The profiler strips the import folder, so a path starts with the package.
_FRAMEWORKS = {
    "torch", "torchvision", "torchaudio", "functorch", "triton", "torchgen", "habana_frameworks", "numpy", "PIL",
    "tqdm", "perftool", "_distutils_hack", "pkg_resources", "pytorch_lightning", "lightning", "lightning_fabric",
    "lightning_utilities", "torchmetrics", "accelerate", "deepspeed",
}  # fmt: skip
# Common libraries of models and training loops, for traces that do not list the installed packages.
_LIBRARIES = {
    "transformers", "diffusers", "timm", "peft", "trl", "tokenizers", "sentence_transformers", "huggingface_hub",
    "vllm", "sglang", "megatron", "xformers", "flash_attn", "flashinfer", "bitsandbytes", "fairscale", "fairseq",
    "torchtitan", "torchtune", "torchrec", "torchdata", "torchtext", "tensordict", "torchrl", "ignite", "fastai",
    "fastcore", "skorch", "composer", "torch_geometric", "torch_scatter", "dgl", "e3nn", "gpytorch", "linear_operator",
    "botorch", "pyro", "torchdiffeq", "torchsde", "opacus", "monai", "kornia", "einops", "segmentation_models_pytorch",
    "detectron2", "mmcv", "mmengine", "ultralytics", "open_clip", "speechbrain", "stable_baselines3", "gymnasium",
    "tianshou", "scipy", "sklearn", "pandas", "cv2", "albumentations", "matplotlib", "dask", "joblib",
    "x_transformers", "recbole", "nflows", "normflows", "pytorch_forecasting", "darts", "tsai", "deepctr_torch",
    "lightly", "schnetpack", "rtdl_revisiting_models", "torchmd", "learn2learn", "higher", "pytorch_metric_learning",
}  # fmt: skip
# Libraries write code to files named like a module of theirs (torch_geometric.nn.conv.x.py). Users hardly choose such a
# name, because no import statement finds the file.
_WRITTEN = re.compile(r"(?:(?:[\\/]|[a-zA-Z]:).*[\\/])?([a-zA-Z_]\w*)(?:\.[a-zA-Z_]\w*){2,}\.py", re.DOTALL)
# The top-level key under which our recorder lists the packages installed on the recording machine.
INSTALLED_KEY = "perftoolInstalled"
# A frame of a stack: file(line): function.
_FRAME = re.compile(r"(.+)\((\d{1,9})\): (.+)")

Line = tuple[str | None, int | None, str]


def is_own(file: str, installed: Collection[str] = ()) -> bool:
    """Whether ``file``, as a trace names it, is the user's own code: not generated, and not part of Python, a framework
    or an installed package.

    ``installed`` lists further packages, each by the first part of its relative paths.
    """
    if file.startswith("<"):
        return False
    parts = [part for part in re.split(r"[\\/]", file) if part not in ("", ".")]
    if any(part in PACKAGE_FOLDERS or part.startswith(_GENERATED) for part in parts):
        return False
    # pip installs a small script for each command of a package.
    if len(parts) > 1 and parts[-2] in _COMMANDS and "." not in parts[-1]:
        return False
    if any(_PYTHON.fullmatch(part) and before in ("lib", "lib64", "Lib") for before, part in pairwise(parts)):
        return False
    absolute = file.startswith(("/", "\\")) or file[1:2] == ":"
    top = package_of(file)
    if absolute and not is_written(file):
        return True
    return top not in sys.stdlib_module_names and top not in _FRAMEWORKS and top not in installed


def is_library(file: str) -> bool:
    """Whether ``file`` belongs to a well-known library of models or training loops."""
    return package_of(file) in _LIBRARIES


def is_written(file: str) -> bool:
    """Whether a library wrote ``file`` to hold generated code, judging by its name."""
    return _WRITTEN.fullmatch(file) is not None


def package_of(file: str) -> str:
    """Return the package or module of a relative path, which is its first part, or the package that wrote ``file``."""
    if written := _WRITTEN.fullmatch(file):
        return written[1]
    parts = [part for part in re.split(r"[\\/]", file) if part not in ("", ".")]
    return parts[0].removesuffix(".py") if parts else ""


def innermost(stack: str, installed: Collection[str] = ()) -> Line | None:
    """Return the innermost of the user's own lines in a call stack. Semicolons separate the stack's frames."""
    for text in stack.split(";"):
        found = _FRAME.fullmatch(text.strip())
        if found and is_own(found[1], installed):
            return found[1], int(found[2]), found[3]
    return None
