"""Patterns of performance-related log lines of the Gaudi software.

``core`` is a literal part of the line that is cheap to search for. Patterns are not anchored, because prefixes vary.
Their groups ``name``, ``value`` and ``limit`` fill the fields of the event. The literals come from the source code of
Gaudi's PyTorch bridge and from published documentation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinePattern:
    """One known line, which becomes a LogEvent of ``kind`` with a number in the unit ``unit``.

    With ``above_limit``, the line counts only if its value exceeds its limit. ``name`` is the event's name if the
    pattern captures none.
    """

    core: str
    pattern: re.Pattern[str]
    kind: str
    unit: str | None = None
    above_limit: bool = False
    name: str = ""


def known_line(
    core: str, pattern: str, kind: str, unit: str | None = None, *, above_limit: bool = False, name: str = ""
) -> LinePattern:
    """Make a LinePattern from the text of a regular expression."""
    return LinePattern(core, re.compile(pattern), kind, unit, above_limit, name)


_NUMBER = r"\d{1,18}"

DISK_CACHE = (
    # The space before "successfully" is missing in release 1.19.
    known_line(
        "[CACHEFILE] Removed",
        r"Removed (?P<name>\S{1,200}?)\s{0,8}successfully\."
        rf"(?: Disk cache size after removal: (?P<value>{_NUMBER}))?",
        "recipe_evicted",
        "bytes",
    ),
    known_line(
        "[CACHEFILE] Recipes total size",
        rf"Recipes total size: (?P<value>{_NUMBER}), limit: (?P<limit>{_NUMBER})",
        "disk_cache_size",
        "bytes",
    ),
    known_line(
        "Recipes total size exceeded",
        rf"exceeded the limit: (?P<value>{_NUMBER})/(?P<limit>{_NUMBER})\. Trying to remove: (?P<name>\S+)",
        "disk_cache_full",
        "bytes",
    ),
    # Release 1.19 prints this even if the size does not exceed the limit.
    known_line(
        "still exceeded the limit",
        rf"still exceeded the limit after eviction: (?P<value>{_NUMBER})/(?P<limit>{_NUMBER})",
        "disk_cache_over_limit",
        "bytes",
        above_limit=True,
    ),
    known_line("Cache directory(", r"Cache directory\((?P<name>.{0,200}?)\) set up properly", "disk_cache_ready"),
    known_line("Disk cache eviction is disabled", r"", "disk_cache_eviction_off"),
    known_line("No access for eviction", r"", "disk_cache_eviction_busy"),
    known_line("Found cache entry with recipe", r"with recipe: ?(?P<name>\S*)", "disk_cache_hit"),
    known_line("Trying to find recipe and metadata", r"for id (?P<name>\S+)", "disk_cache_lookup"),
    known_line(
        "flag is going to be deprecated",
        r"(?P<name>[A-Z][A-Z0-9_]{1,80}) flag is going to be deprecated, use PT_HPU_RECIPE_CACHE_CONFIG",
        "deprecated_variable",
    ),
)

RECIPE_CACHE = (
    known_line("recipe cache hit ::", r"cache hit :: (?P<name>static shapes|dynamic shapes|key)", "recipe_cache_hit"),
    known_line(
        "recipe cache miss ::",
        r"cache miss :: (?P<name>static shapes|dynamic shapes|key)",
        "recipe_cache_miss",
    ),
    known_line("shape agnostic graph cache hit", r"", "shape_agnostic_hit"),
    known_line("shape agnostic cache miss", r"", "shape_agnostic_miss"),
    known_line("Eager Op JIT graph cache miss", r"", "eager_graph_miss"),
    known_line("Launch dynamic recipe", r"is_first_launch: ?(?P<name>\w*)", "dynamic_recipe_launch"),
)

DYNAMIC_SHAPES = (
    known_line("step marker due to ", r"step marker due to (?P<name>.{0,200})", "graph_cut"),
    known_line(
        "[DETECT_RECOMPILE_AUTO]",
        r"AUTO\]\[(?P<name>[^\]]{0,200})\].{0,200}Recompilation!",
        "module_recompiled",
    ),
    known_line("Number of unique shapes", rf"unique shapes:\s*(?P<value>{_NUMBER})", "unique_input_shapes", "count"),
    known_line("dynamicity in input data shapes", r"There is (?P<name>.{1,40}?) dynamicity", "input_dynamicity"),
    known_line(
        "is not yet supported on HPU",
        r"(?<![\w:.])(?P<name>[\w:.]{0,200}) ?is not yet supported on HPU",
        "op_unsupported",
    ),
    known_line("during hpu graph capturing", r"cpu fallback is not supported", "fallback_in_capture"),
    known_line("during HPU Graph capturing", r"is not supported during", "fallback_in_capture"),
)

_STATISTIC = rf"[ \t]*:-[ \t]*(?P<value>{_NUMBER})"
# ModuleCacher's "uncached hits" are misses.
GRAPH_STATISTICS = tuple(
    known_line(label, re.escape(label) + _STATISTIC, "hpu_graph_statistic", "count", name=name)
    for label, name in (
        ("Max graphs", "max_graphs"),
        ("No. of HPUGraphs cached", "cached_graphs"),
        ("Total cached hits", "hits"),
        ("Uncached train hits", "train_misses"),
        ("Uncached eval hits", "eval_misses"),
        ("Total forwards executed", "forwards"),
    )
)

FAILURES = (
    # The default host allocator of a Gaudi container prints this for each allocation of 1 GiB or more.
    known_line("large alloc ", r"tcmalloc: large alloc (?P<value>\d{1,18}) bytes", "large_host_allocation", "bytes"),
    known_line("Defragmentation cannot be started", r"", "defragmentation_impossible"),
    known_line(
        "Graph compile failed",
        r"Graph compile failed\.?(?: synStatus=(?P<name>synStatus \d+ \[[^\]]{0,80}\]))?",
        "graph_compile_failed",
    ),
    known_line("Weight sharing unsuccessful", r"", "weight_sharing_failed"),
    known_line("does not have any effect", r"Calling (?P<name>mark_step) function", "mark_step_ignored"),
    known_line("Closing PyTorch logger", r"", "clean_exit"),
)

# Lines that explain why a trace has no device lanes.
PROFILER = (
    known_line(
        "Tensorboard callback for HPU hardware profiling disabled",
        r"",
        "no_device_trace",
        name="HABANA_PROFILE unset",
    ),
    known_line("synProfiler", r"(?P<name>synProfiler\w{1,40} failed)", "no_device_trace"),
    known_line("No profiler entries", r"(?P<name>No profiler entries)", "no_device_trace"),
    known_line("hl-prof-config", r"(?P<name>--hw-trace[ =]off)", "no_device_trace"),
    known_line("SYNAPSE_FUNCTION_CALLS is no longer supported", r"", "debug_activity_ignored"),
)

BRIDGE_PATTERNS = (*DISK_CACHE, *RECIPE_CACHE, *DYNAMIC_SHAPES, *GRAPH_STATISTICS, *FAILURES, *PROFILER)
