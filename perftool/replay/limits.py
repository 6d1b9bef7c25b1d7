"""Limits, most of them on the delays of links. A link repeats the delay that was observed. If every delay had a link,
the replay would equal the recording by construction. So delays above these limits are left out, and become the error of
the replay.
"""

NEAR_NS = 10_000
"""Work that starts within this time after the end of other work follows it."""

ACROSS_NS = 25_000
"""The same limit for work on another stream. It is longer, because the device has to check an event."""

LAUNCH_NS = 50_000
"""Longest delay from the return of a launch to the start of its work on an idle device."""

WAKE_NS = 100_000
"""Longest delay from the end of device work to the return of the call that waits for it."""

PAUSE_NS = 20_000
"""A thread without events for longer than this may be waiting for another thread."""

MOST_RANKS = 8
"""Maximum number of ranks whose steps are replayed; more would take too long."""

FULL_QUEUE = 512
"""A long launch with more than this many outstanding launches waits for space in the queue."""

ROUNDED_NS = 2_000
"""Times are rounded, some to the microsecond: work may seem to begin this much before its predecessor ends."""
