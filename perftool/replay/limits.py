"""How much of a delay a link may explain.

A link holds with the delay that was observed. If any delay were taken as explained, the replay would equal the
recording by construction; so delays beyond these limits are not. What the graph does not explain is missing from the
replay, and shows as its error.
"""

NEAR_NS = 10_000
"""Work that starts within this of the end of other work follows it."""

ACROSS_NS = 25_000
"""The same for work of another stream: the device has to look at an event."""

LAUNCH_NS = 50_000
"""From the return of a launch to the start of its work on an idle device."""

WAKE_NS = 100_000
"""From the end of device work to the return of the call that waits for it."""

PAUSE_NS = 20_000
"""A thread that shows nothing for longer may be waiting for another thread."""

MOST_RANKS = 8
"""Ranks whose steps are replayed: beyond these a replay of each would take longer than all else."""

FULL_QUEUE = 512
"""A launch that takes long while more than this many are outstanding waits for room in the queue."""
