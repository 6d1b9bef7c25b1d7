"""Configuration files and environment dumps."""

from __future__ import annotations

import re

import pytest

from perftool.model.inputs import ImportIssue
from perftool.model.records import ConfigEntry, LogReading
from perftool.readers import text_input
from perftool.readers.config import run_config
from perftool.readers.logs import environment_dump

DEEPSPEED = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": true},
  "fp16": {"enabled": false},
  "zero_optimization": {
    "stage": 3,
    "reduce_bucket_size": 5e8,
    "offload_optimizer": {}
  },
  "betas": [0.9, 0.999]
}
"""


def test_deepspeed() -> None:
    assert run_config.read(DEEPSPEED.encode()) == LogReading(
        config=(
            ConfigEntry("deepspeed", "train_micro_batch_size_per_gpu", "auto", line=2),
            ConfigEntry("deepspeed", "bf16.enabled", "true"),
            ConfigEntry("deepspeed", "fp16.enabled", "false"),
            ConfigEntry("deepspeed", "zero_optimization.stage", "3", line=6),
            ConfigEntry("deepspeed", "zero_optimization.reduce_bucket_size", "500000000.0", line=7),
            ConfigEntry("deepspeed", "zero_optimization.offload_optimizer", "{}", line=8),
            ConfigEntry("deepspeed", "betas", "[0.9, 0.999]", line=10),
        ),
        kind="config",
    )


def test_gaudi_config() -> None:
    text = '{"use_fused_adam": true, "use_torch_autocast": false, "autocast_bf16_ops": null}'
    assert [(entry.source, entry.key, entry.value) for entry in run_config.read(text.encode()).config] == [
        ("gaudi_config", "use_fused_adam", "true"),
        ("gaudi_config", "use_torch_autocast", "false"),
        ("gaudi_config", "autocast_bf16_ops", "null"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_other_encodings(encoding: str) -> None:
    assert run_config.read(DEEPSPEED.encode(encoding)) == run_config.read(DEEPSPEED.encode())


TOO_DEEP = "the file is not usable JSON: a number is too long or the nesting too deep"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (DEEPSPEED[:40], "bad JSON", "the file is not valid JSON: Unterminated string starting at in line 2"),
        ("[" * 100_000, "bad JSON", TOO_DEEP),
        ('{"a": ' + "9" * 5000 + "}", "bad JSON", TOO_DEEP),
        ("[1, 2]", "not a configuration", "the file contains no object with settings"),
        (
            "{\n" + f'"{"x" * 10_000}": 1,\n' * 900 + '"bf16": 1}',
            "too large",
            "the file is too large for a configuration and is not used",
        ),
    ],
    ids=["cut", "deep", "long number", "array", "large"],
)
def test_an_unusable_file_is_one_issue(text: str, kind: str, message: str) -> None:
    reading = run_config.read(text.encode())
    assert reading == LogReading(issues=(ImportIssue(kind, 1, message),), kind="config")


def test_trailing_comma_is_named_by_its_line() -> None:
    (issue,) = run_config.read(b'{\n"bf16": 1,\n}').issues
    assert issue.kind == "bad JSON"
    assert re.search(r"in line [23]$", issue.message)


def test_empty_file() -> None:
    assert run_config.read(b" \n") == LogReading(kind="config")


def test_environment() -> None:
    text = """\
PATH=/usr/bin
export PT_HPU_LAZY_MODE=1
declare -x PT_HPU_RECIPE_CACHE_CONFIG="/tmp/recipes,false,1024"
# PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES=1
LOG_LEVEL_PT_FALLBACK=1  # see the guide
BASH_FUNC_module%%=() {  eval `/usr/bin/modulecmd bash $*`
 RANK=99
}
RANK=3
PT_HPU_LAZY_MODE=0
EMPTY
"""
    reading = environment_dump.read(text.encode())
    assert reading.config == (
        ConfigEntry("environment", "PT_HPU_LAZY_MODE", "0", line=10),
        ConfigEntry("environment", "PT_HPU_RECIPE_CACHE_CONFIG", "/tmp/recipes,false,1024", line=3),
        ConfigEntry("environment", "LOG_LEVEL_PT_FALLBACK", "1", line=5),
        ConfigEntry("environment", "RANK", "3", line=9),
    )
    assert reading.issues == (
        ImportIssue("not an assignment", 1, "a line is neither an assignment nor a comment, first in line 11"),
    )


def test_a_function_without_an_end_is_damage() -> None:
    found = environment_dump.read(b"RANK=1\nBASH_FUNC_x%%=() {  echo\nWORLD_SIZE=2\n")
    assert [one.key for one in found.config] == ["RANK"]
    text = "a shell function has no end, so the lines after its beginning are left out, first in line 2"
    assert found.issues == (ImportIssue("no end", 1, text),)


@pytest.mark.parametrize("function", ["", "BASH_FUNC_x%%=() {  echo\n RANK=7\n}\n", "BASH_FUNC_x%%=() {  echo\n"])
def test_an_environment_before_a_log_is_part_of_the_log(function: str) -> None:
    environment = "".join(f"V{number}=1\n" for number in range(9)) + "\nRANK=3\n" + function
    log = "Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n\nRANK=4\n"
    found = text_input.read((environment + log).encode())
    assert [one.op for one in found.fallbacks] == ["aten::digamma"]
    assert found.config == (ConfigEntry("environment", "RANK", "3", line=11),)
    assert (found.kind, found.issues) == ("fallback_log", ())


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "PT_SECRET", "HABANA_TOKEN", "AWS_SECRET_ACCESS_KEY", "http_proxy", "HOME"]
)
def test_secrets_and_foreign_variables_stay_out(name: str) -> None:
    assert environment_dump.read(f"{name}=x\nRANK=1\n".encode()).config == (
        ConfigEntry("environment", "RANK", "1", line=2),
    )


def test_environment_of_a_process() -> None:
    assert environment_dump.read(b"RANK=1\0TOKENIZERS_PARALLELISM=false\0").config == (
        ConfigEntry("environment", "RANK", "1", line=1),
        ConfigEntry("environment", "TOKENIZERS_PARALLELISM", "false", line=1),
    )
