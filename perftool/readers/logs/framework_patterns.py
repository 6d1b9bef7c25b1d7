"""Patterns of log lines in which training frameworks state the batch size, the model, the precision and other settings.

The lines come from Hugging Face Trainer, Lightning, DeepSpeed, Megatron, MLPerf loggers, and dumps of arguments. The
``name`` of a ``batch_size`` event is ``per_device_train``, ``global_train``, ``eval``, ``inferred`` (by Lightning, from
a batch) or ``argument`` (of a script).
"""

from __future__ import annotations

from perftool.readers.logs.bridge_patterns import LinePattern, known_line

_NUMBER = r"(?P<value>\d[\d,]{0,17})"
_ASSIGNED = r"['\"]?\s*[=:]\s*"
_QUOTED = r"['\"](?P<name>[^'\"]{1,200})['\"]"


def _count(core: str, kind: str, name: str = "", between: str = " = ") -> LinePattern:
    return known_line(core, r"(?<![\w-])" + core.replace("(", r"\(") + between + _NUMBER, kind, "count", name=name)


BATCH_SIZE = (
    _count("Instantaneous batch size per device", "batch_size", "per_device_train"),
    _count("Total train batch size", "batch_size", "global_train", r"[^=]{0,80} = "),
    _count("Batch size", "batch_size", "eval"),
    _count("per_device_train_batch_size", "batch_size", "per_device_train", _ASSIGNED),
    _count("per_device_eval_batch_size", "batch_size", "eval", _ASSIGNED),
    _count("train_micro_batch_size_per_gpu", "batch_size", "per_device_train", r" \.+ "),
    _count("micro_batch_size", "batch_size", "per_device_train", r" \.+ "),
    _count("train_batch_size", "batch_size", "global_train", r" \.+ "),
    known_line(
        "global_batch_size",
        r"\"global_batch_size\", \"value\": " + _NUMBER,
        "batch_size",
        "count",
        name="global_train",
    ),
    known_line("batch_size", r"(?<![\w.])batch_size" + _ASSIGNED + _NUMBER, "batch_size", "count", name="argument"),
    known_line("--batch", r"--batch[-_]size[= ]+" + _NUMBER, "batch_size", "count", name="argument"),
    known_line("The batch size we found is", r"we found is " + _NUMBER, "batch_size", "count", name="inferred"),
)

MODEL = (
    known_line("model_name_or_path", r"model_name_or_path" + _ASSIGNED + _QUOTED, "model"),
    known_line("_name_or_path", r"\"_name_or_path\": " + _QUOTED, "model"),
    known_line("--model", r"--model(?:_name_or_path|-name)?[= ]+['\"]?(?P<name>[\w./-]+)", "model"),
    known_line("model=", r"(?<!\w)model=" + _QUOTED, "model"),
    known_line("models--", r"models--(?P<name>[\w.-]{1,200}?)/snapshots", "model"),
    known_line("Model config ", r"Model config (?P<name>\w+)Config\b", "model"),
    # A row of Lightning's model summary: number, attribute, class, parameters.
    known_line(" | ", r"^\s*\d+\s+\| \w+\s+\| (?P<name>[A-Z]\w+)\s+\| +[\d.,]+ ?[KMBT]?\b", "model"),
)

RUN = (
    known_line(
        "max_seq", r"max_seq(?:uence)?_len(?:gth)?['\"]?\s{0,8}[=: ]\s{0,8}" + _NUMBER, "sequence_length", "count"
    ),
    _count("Num examples", "examples"),
    _count("Num Epochs", "epochs"),
    _count("Gradient Accumulation steps", "gradient_accumulation_steps"),
    _count("Total optimization steps", "optimization_steps"),
    _count("Number of trainable parameters", "trainable_parameters"),
    _count("logging_steps", "logging_steps", "", _ASSIGNED),
    known_line("dataloader_num_workers", r"dataloader_num_workers" + _ASSIGNED + _NUMBER, "loader_workers", "count"),
    known_line("does not have many workers", r"The '?(?:dataloader, )?(?P<name>\w+)", "few_loader_workers"),
    known_line("HPU available: ", r"available: (?P<name>\w+), using: " + _NUMBER + " HPU", "lightning_hpus", "count"),
    known_line("Automatic Mixed Precision", r"Using (?P<name>\w+) (?:native )?Automatic Mixed Precision", "precision"),
    known_line("'loss': ", r"\{'loss': .{1,500}'epoch': ", "loss_line"),
)

FRAMEWORK_PATTERNS = (*BATCH_SIZE, *MODEL, *RUN)
