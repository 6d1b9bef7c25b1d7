"""Known lines of the bridge and of training frameworks, compilations and progress bars."""

from __future__ import annotations

import pytest
from scanning import read_events

from perftool.model.records import CompilationRecord, LogEvent


def brief(text: str) -> list[tuple[str, str, int, float | None, float | None]]:
    """Return the (kind, name, count, value, limit) of each event in ``text``."""
    events = read_events(text.encode()).events
    return [(event.kind, event.name, event.count, event.value, event.limit) for event in events]


def test_eviction_in_full() -> None:
    text = (
        "[20:57:12.104233][PT_HABHELPER       ][info ][tid:398E] "
        "[CACHEFILE] Removed 8231904successfully. Disk cache size after removal: 1063004405\n"
        "[1,0]<stderr>:[CACHEFILE] Removed 8231904 successfully. Disk cache size after removal: 900\n"
    )
    fixed = {"kind": "recipe_evicted", "name": "8231904", "unit": "bytes"}
    assert read_events(text.encode()).events == (
        LogEvent(**fixed, value=1_063_004_405, line=1, last_line=1, time_ns=75_432_104_233_000),
        LogEvent(**fixed, value=900, rank=0, line=2, last_line=2),
    )


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("[CACHEFILE] Removed 7successfully.", ("recipe_evicted", "7", 1, None, None)),
        ("[CACHEFILE] Recipes total size: 5, limit: 9", ("disk_cache_size", "", 1, 5, 9)),
        (
            "Recipes total size exceeded the limit: 9/5. Trying to remove: 77",
            ("disk_cache_full", "77", 1, 9, 5),
        ),
        (
            "Recipes total size still exceeded the limit after eviction: 9/5.",
            ("disk_cache_over_limit", "", 1, 9, 5),
        ),
        ("Cache directory(/tmp/a (b)) set up properly.", ("disk_cache_ready", "/tmp/a (b)", 1, None, None)),
        ("Disk cache eviction is disabled.", ("disk_cache_eviction_off", "", 1, None, None)),
        ("No access for eviction.", ("disk_cache_eviction_busy", "", 1, None, None)),
        ("Found cache entry with recipe: 12", ("disk_cache_hit", "12", 1, None, None)),
        ("Trying to find recipe and metadata for id 12", ("disk_cache_lookup", "12", 1, None, None)),
        (
            "PT_RECIPE_CACHE_PATH flag is going to be deprecated, use PT_HPU_RECIPE_CACHE_CONFIG instead",
            ("deprecated_variable", "PT_RECIPE_CACHE_PATH", 1, None, None),
        ),
        ("HabanaOp recipe cache hit :: static shapes", ("recipe_cache_hit", "static shapes", 1, None, None)),
        (
            "HabanaOp recipe cache miss :: dynamic shapes",
            ("recipe_cache_miss", "dynamic shapes", 1, None, None),
        ),
        ("HabanaOp recipe cache miss :: key 77", ("recipe_cache_miss", "key", 1, None, None)),
        ("HabanaOp shape agnostic graph cache hit :: key", ("shape_agnostic_hit", "", 1, None, None)),
        (
            "[SHAPE AGNOSTIC] shape agnostic cache miss (begin)",
            ("shape_agnostic_miss", "", 1, None, None),
        ),
        ("Eager Op JIT graph cache miss for key 3", ("eager_graph_miss", "", 1, None, None)),
        ("Launch dynamic recipe. is_first_launch: 1", ("dynamic_recipe_launch", "1", 1, None, None)),
        (
            "step marker due to HPUStream::query/synchronize ",
            ("graph_cut", "HPUStream::query/synchronize", 1, None, None),
        ),
        ("Number of unique shapes:  23", ("unique_input_shapes", "", 1, 23, None)),
        (
            "There is a lot of dynamicity in input data shapes",
            ("input_dynamicity", "a lot of", 1, None, None),
        ),
        (
            "it/s]Configuration: (prompt, 1, 36864) was not warmed-up!",
            ("not_warmed_up", "(prompt, 1, 36864)", 1, None, None),
        ),
        ("aten::foo is not yet supported on HPU.", ("op_unsupported", "aten::foo", 1, None, None)),
        (
            "cpu fallback is not supported during hpu graph capturing",
            ("fallback_in_capture", "", 1, None, None),
        ),
        ("    Max graphs                :- 10", ("hpu_graph_statistic", "max_graphs", 1, 10, None)),
        ("    Uncached eval hits        :- 4", ("hpu_graph_statistic", "eval_misses", 1, 4, None)),
        (
            "Defragmentation cannot be started. There is not enough free memory.",
            ("defragmentation_impossible", "", 1, None, None),
        ),
        (
            "Graph compile failed. synStatus=synStatus 26 [Generic failure]. ",
            ("graph_compile_failed", "synStatus 26 [Generic failure]", 1, None, None),
        ),
        (
            "Weight sharing unsuccessful. You can disable weight sharing by setting: PT_HPU_WEIGHT_SHARING=0",
            ("weight_sharing_failed", "", 1, None, None),
        ),
        (
            'Tensorboard callback for HPU hardware profiling disabled. To enable set "HABANA_PROFILE"',
            ("no_device_trace", "HABANA_PROFILE unset", 1, None, None),
        ),
        ("synProfilerGetTrace failed", ("no_device_trace", "synProfilerGetTrace failed", 1, None, None)),
        ("No profiler entries", ("no_device_trace", "No profiler entries", 1, None, None)),
        ("+ hl-prof-config --gaudi2 --hw-trace off", ("no_device_trace", "--hw-trace off", 1, None, None)),
        (
            "Calling mark_step function does not have any effect. It's lazy mode only functionality.",
            ("mark_step_ignored", "mark_step", 1, None, None),
        ),
        ("  Instantaneous batch size per device = 8", ("batch_size", "per_device_train", 1, 8, None)),
        (
            "  Total train batch size (w. parallel, distributed & accumulation) = 1,024",
            ("batch_size", "global_train", 1, 1024, None),
        ),
        ("  Batch size = 16", ("batch_size", "eval", 1, 16, None)),
        ("per_device_train_batch_size=8,", ("batch_size", "per_device_train", 1, 8, None)),
        ("python main.py --batch-size 256", ("batch_size", "argument", 1, 256, None)),
        ("Namespace(batch_size=256)", ("batch_size", "argument", 1, 256, None)),
        ("  train_micro_batch_size_per_gpu  4", None),
        (
            "[config.py:988:print]   train_micro_batch_size_per_gpu ... 4",
            ("batch_size", "per_device_train", 1, 4, None),
        ),
        (
            "Trying to infer the `batch_size` from an ambiguous collection. The batch size we found is 32.",
            ("batch_size", "inferred", 1, 32, None),
        ),
        ("  Num examples = 3,668", ("examples", "", 1, 3668, None)),
        (
            "  Number of trainable parameters = 108,311,810",
            ("trainable_parameters", "", 1, 108_311_810, None),
        ),
        ("model_name_or_path='bert-large-uncased',", ("model", "bert-large-uncased", 1, None, None)),
        ("+ python train.py --model resnet50", ("model", "resnet50", 1, None, None)),
        (
            "loading file /hub/models--bert-large-uncased/snapshots/6da4b6/config.json",
            ("model", "bert-large-uncased", 1, None, None),
        ),
        ("0 | model | ResNet | 25.6 M | train", ("model", "ResNet", 1, None, None)),
        ("HPU available: True, using: 8 HPUs", ("lightning_hpus", "True", 1, 8, None)),
        ("Using bfloat16 Automatic Mixed Precision (AMP)", ("precision", "bfloat16", 1, None, None)),
        (
            "The 'train_dataloader' does not have many workers which may be a bottleneck.",
            ("few_loader_workers", "train_dataloader", 1, None, None),
        ),
        ("{'loss': 0.71, 'learning_rate': 5e-05, 'epoch': 0.5}", ("loss_line", "", 1, None, None)),
        ("nothing of interest", None),
    ],
)
def test_one_line(line: str, event: tuple[str, str, int, float | None, float | None] | None) -> None:
    assert brief(line + "\n") == ([] if event is None else [event])


@pytest.mark.parametrize("sizes", ["4/5", "5/5"])
def test_inverted_warning_counts_only_above_the_limit(sizes: str) -> None:
    assert brief(f"Recipes total size still exceeded the limit after eviction: {sizes}.") == []


def test_histogram_of_graph_cuts() -> None:
    text = (
        "step marker due to host step marker\n"
        "step marker due to local scalar\n"
        "step marker due to cpu fallback aten::nonzero\n"
        "step marker due to local scalar\r\n"
        "step marker due to cpu fallback aten::unique2\n"
    )
    assert brief(text) == [
        ("graph_cut", "host step marker", 1, None, None),
        ("graph_cut", "local scalar", 2, None, None),
        ("graph_cut", "cpu fallback", 2, None, None),
    ]


def test_compilation_lines_of_three_sources() -> None:
    stats = "recipe compilation time |last {} [ns] |sum {} [ns] |count {}|average 9 [ns]   -----  Global x\n"
    text = (
        "HabanaOp recipe cache :: adding new recipe to cache :: 7731\n"
        + stats.format(10, 10, 1)
        + stats.format(15, 45, 3)
        + stats.format(15, 45, 3)
        + stats.format(5, 5, 1)
        + "  [DETECT_RECOMPILE_AUTO][Net/1] Found new input signature num_graphs:1 Recompilation!\n"
        + "[DETECT_RECOMPILE_AUTO][Net]step:4 Found new input signature num_graphs:2 Recompilation!\n"
        + "[DETECT_RECOMPILE_AUTO][Net]step:5 num_graphs:1 Recompilation!\n"
        + "[DETECT_RECOMPILE_AUTO][Net]step:6 num_graphs:0 \n"
    )
    assert read_events(text.encode()).compilations == (
        CompilationRecord("recipe_cache", recipe="7731", ordinal=0, line=1),
        CompilationRecord("print_stats", count=1, dur_ns=10, ordinal=1, line=2),
        CompilationRecord("print_stats", count=2, dur_ns=35, ordinal=2, line=3),
        CompilationRecord("print_stats", count=1, dur_ns=5, ordinal=3, line=5),
        CompilationRecord("detect_recompilation", count=2, ordinal=4, step=4, reason="new shapes", line=7),
        CompilationRecord("detect_recompilation", count=1, ordinal=5, step=5, reason="same shapes", line=8),
    )


def test_progress_bar_cadence() -> None:
    text = (
        "\rEpoch 0:   0%|          | 0/100 [00:00<?, ?it/s]"
        "\rEpoch 0:  10%|█         | 10/100 [00:01<00:09,  9.91it/s, loss=0.1]"
        "\rEpoch 0:  30%|███       | 30/100 [00:03<00:07,  9.91it/s, loss=0.1]\n"
        "\rEpoch 1:   0%|          | 0/100 [00:00<?, ?it/s]"
        "\rEpoch 1:  15%|█         | 15/100 [00:01<00:09,  1.91s/it]\n"
    )
    assert brief(text) == [("progress_bar", "Epoch #", 3, 15.0, 100)]


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("x|1%|1%|", ""),
        ("a: b: 7%|x", ""),
        ("1:22 epoch:", "epoch"),
        ("", ""),
        ("50%|a|Val 2:  ", "Val #"),
        ("x:y", ""),
    ],
)
def test_a_progress_bar_is_named_by_the_text_before_it(before: str, name: str) -> None:
    text = "".join(f"{before}{done}%|#| {done}/100 [00:01<00:09, 9.9it/s]\n" for done in (10, 20))
    assert [(event.name, event.value) for event in read_events(text.encode()).events] == [(name, 10.0)]


def test_events_are_kept_apart_by_rank() -> None:
    text = "rank0: step marker due to nms\nrank1: step marker due to nms\nrank0: step marker due to nms\n"
    reading = read_events(text.encode())
    assert [(event.rank, event.count) for event in reading.events] == [(0, 2), (1, 1)]
    assert reading.ranks == (0, 1)
