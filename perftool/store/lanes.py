"""The one place that says what a category and a lane mean.

Profilers spell the same thing in many ways. ``CATEGORIES`` maps the category of an event to its kind and to
the side it belongs to; ``LANES`` tells the lanes of a device by their names. Both become tables of the store
(``_categories``, ``_lanes``), so that supporting a new device means adding rows here.
"""

from __future__ import annotations

# (category in lower case, kind, side). Side "lane": the same category is used for host calls and for device
# work, and only the lane tells them apart (Gaudi).
CATEGORIES: tuple[tuple[str, str, str], ...] = (
    ("cpu_op", "cpu_op", "host"),
    ("operator", "cpu_op", "host"),
    ("python", "cpu_op", "host"),
    ("user_annotation", "user_annotation", "host"),
    ("python_function", "python_function", "host"),
    ("overhead", "overhead", "host"),
    ("trace", "trace", "host"),
    ("cuda_runtime", "runtime", "host"),
    ("cuda_driver", "runtime", "host"),
    ("xpu_runtime", "runtime", "host"),
    ("xpu_driver", "runtime", "host"),
    ("mtia_runtime", "runtime", "host"),
    ("glow_runtime", "runtime", "host"),
    ("privateuse1_runtime", "runtime", "host"),
    ("privateuse1_driver", "runtime", "host"),
    ("runtime", "runtime", "lane"),
    ("hpu_op", "runtime", "lane"),
    ("kernel", "kernel", "device"),
    ("concurrent_kernel", "kernel", "device"),
    ("mtia_ccp_events", "kernel", "device"),
    ("mtia_workloadd", "kernel", "device"),
    ("memcpy", "memcpy", "device"),
    ("gpu_memcpy", "memcpy", "device"),
    ("memset", "memset", "device"),
    ("gpu_memset", "memset", "device"),
    ("gpu_user_annotation", "device_annotation", "device"),
    ("mtia_counters", "device_annotation", "device"),
    ("mtia_insight", "device_annotation", "device"),
    ("cuda_sync", "device_annotation", "device"),
    ("cuda_event", "device_annotation", "device"),
)

# (order, what is matched, regular expression on the lower-case text, engine). The first match wins; "base"
# rows match the Gaudi lane base, tid divided by 1000, within a device process.
LANES: tuple[tuple[int, str, str, str], ...] = (
    (10, "process", r"^/device:hpu:\d+ .*\b(tpc)\b", "TPC"),
    (11, "process", r"^/device:hpu:\d+ .*\b(mme)\b", "MME"),
    (12, "process", r"^/device:hpu:\d+ .*pdma", "PDMA"),
    (13, "process", r"^/device:hpu:\d+ .*(edma|kdma|dma)", "DMA"),
    (14, "process", r"^/device:hpu:\d+ .*nic", "NIC"),
    (15, "process", r"^/device:hpu:\d+ .*rot", "ROT"),
    (20, "base", r"^(1|6)$", "MME"),
    (21, "base", r"^(2|7)$", "TPC"),
    (22, "base", r"^3$", "PDMA"),
    (23, "base", r"^(0|4|5)$", "DMA"),
    (24, "base", r"^(14|15|16|17)$", "NIC"),
    (25, "base", r"^11$", "ROT"),
    (26, "base", r"^\d+$", "other"),
)
