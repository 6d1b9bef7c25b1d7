"""Patterns of log lines in which vLLM or its plugin for Gaudi reports an event or a setting."""

from __future__ import annotations

import re

from perftool.model.records import ConfigEntry, LogReading
from perftool.readers.logs.bridge_patterns import known_line
from perftool.readers.text.log_lines import Beginning, LogLine

PREEMPTION = "preemption"
SERVING_PATTERNS = (
    # V0 prints only the first preemption and every fiftieth after it, with its number (1, 51, 101).
    known_line(
        "is preempted by",
        r"is preempted by (?:PreemptionMode\.)?(?P<name>\w{1,40})"
        r"(?:.{0,400}cumulative_preemption=(?P<value>\d{1,18}))?",
        PREEMPTION,
        "count",
    ),
    known_line("will be overwritten!", r"Your configuration (?P<name>.{1,200}?) will be overwritten!", "flag_ignored"),
    known_line("was not warmed-up", r"Configuration: (?P<name>.{1,200}?) was not warmed-up", "not_warmed_up"),
    known_line("Warmup finished in", r"Warmup finished in (?P<value>\d{1,9})(?:\.\d+)? secs", "warmup", "s"),
    known_line("Profiler stopped successfully", r"", "profile_written"),
    known_line("Skipping warmup", r"", "warmup_skipped"),
    known_line("Model loading took ", r"Model loading took (?P<value>\d{1,9}(?:\.\d{1,9})?) GiB", "weights", "GiB"),
    known_line(
        "Available KV cache memory: ",
        r"Available KV cache memory: (?P<value>\d{1,9}(?:\.\d{1,9})?) GiB",
        "kv_memory",
        "GiB",
    ),
    known_line(" KV cache size: ", r"KV cache size: (?P<value>\d[\d,]{0,17}) tokens", "kv_cache", "tokens"),
)
# Literal parts of lines with settings. V0 prints all arguments, and V1 prints only those that are not defaults.
CORES = (
    "non-default args: ", "args: Namespace(", "LLM engine (v", "server_args=ServerArgs(",
    "Chunked prefill is enabled with ",
)  # fmt: skip
_VLLM_STARTS = r"non-default args: |args: Namespace\("
_ENGINE_STARTS = r"Initializing an? (?:V\d )?LLM engine \(v"
_SETTINGS = Beginning(rf"{_VLLM_STARTS}|{_ENGINE_STARTS}|Chunked prefill is enabled with ")
# The lines that vLLM and SGLang print when they start, and the line of each engine of vLLM.
_STARTS = Beginning(rf"{_VLLM_STARTS}|server_args=ServerArgs\(")
_STARTS_ENGINE = Beginning(_ENGINE_STARTS)
# Only the settings that findings use are read, because the list may contain API keys and paths.
_SETTING = re.compile(
    r"(?<!\w)'?(?P<key>max_num_seqs|max_num_batched_tokens|max_model_len|gpu_memory_utilization|tensor_parallel_size|"
    r"num_gpu_blocks_override|enable_prefix_caching|enable_chunked_prefill|num_speculative_tokens|block_size|enforce_eager)"
    r"'?(?:=|: )(?P<value>[\w.]{1,40})"
)


def starts_server(text: str) -> bool:
    """Whether the line ``text`` is the first line of a server."""
    return _STARTS.match(text) is not None


def starts_engine(text: str) -> bool:
    """Whether the line ``text`` is the first line of an engine. If a server runs without a front end, the log has no
    other line about its start."""
    return _STARTS_ENGINE.match(text) is not None


class SettingScanner:
    """Collects the settings that a server prints when it starts, from the lines of a log, fed in order."""

    def __init__(self) -> None:
        self._entries: dict[str, ConfigEntry] = {}

    def feed(self, line: LogLine) -> None:
        """Keep the settings in ``line``. Later values replace earlier ones, which may be defaults."""
        if _SETTINGS.match(line.text):
            for found in _SETTING.finditer(line.text):
                if found["value"] != "None":
                    key = found["key"]
                    self._entries[key] = ConfigEntry("server", key, found["value"], line.rank, line.number)

    def reading(self) -> LogReading:
        """Return the last value of each setting."""
        return LogReading(config=tuple(self._entries.values()), kind="runtime_log")
