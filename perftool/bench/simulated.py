"""Benchmarks that run only on the simulator; each has a script of the same name."""

from __future__ import annotations

from perftool.bench.harness.case import Benchmark, simulated_only

_ALL = (
    simulated_only("boolean_indexing", ("SYN101", "SYN104"), "Values multiplied by a mask instead of selected by it"),
    simulated_only("cpu_fallback", ("FBK101",), "Distances computed on the device instead of on the CPU"),
    simulated_only("engine_overlap", ("ENG103", "FUS103"), "Attention as one op, which keeps both engines busy"),
    simulated_only("explicit_synchronize", ("SYN102",), "Steps that do not wait for the device"),
    # The tolerance is large because the two optimizers add epsilon at different points.
    simulated_only(
        "gaudi_config",
        ("CFG104", "FUS101", "FUS102"),
        "A Gaudi configuration with fused optimizer and clipping",
        settings="gaudi_config.json",
        tolerance=0.02,
    ),
    simulated_only("mark_step", ("RCP107",), "Graphs cut where a step ends instead of after every layer"),
    simulated_only("oversized_graph", ("RCP108",), "A large graph cut so that the device starts earlier"),
    simulated_only("pinned_memory", ("CPY102", "SYN105"), "Batches in pinned memory instead of pageable memory"),
    simulated_only("prefetch", ("CPY102", "ENG102"), "A batch copied while the device works instead of afterwards"),
    simulated_only("recipe_cache", ("RCP105",), "Texts padded to a few lengths, so that a few graphs serve them all"),
    simulated_only("small_copies", ("CPY103", "ENG102"), "The fields of a batch packed and copied together"),
    simulated_only("sleep_in_step", ("GAP112",), "A pause in the first step instead of in every step"),
    simulated_only("static_and_dynamic", (), "mark_step between a static and a dynamic part"),
    simulated_only("unstable_steps", ("STP101",), "Weights saved after the loop instead of during it"),
    simulated_only("unsupported_dtype", ("FBK101", "FBK102"), "A matmul in a type that the device supports"),
)
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
