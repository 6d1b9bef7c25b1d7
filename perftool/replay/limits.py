"""Limits, most of them on the delays of links. A link repeats the observed delay. If links repeated all delays, the
replay would match the recording by construction. So longer delays are shortened, and show up as the error of the
replay.
"""

NEAR_NS = 10_000
"""Work that starts within this time after other work ends is assumed to follow it."""

ACROSS_NS = 25_000
"""The corresponding limit for work on another stream, which starts later because the device must check an event."""

LAUNCH_NS = 50_000
"""The longest delay from the return of a launch to the start of its work on an idle device."""

WAKE_NS = 100_000
"""The longest delay from the end of device work to the return of the call that waits for it."""

PAUSE_NS = 20_000
"""A thread that has no events for longer than this may be waiting for another thread."""

MOST_RANKS = 8
"""The maximum number of ranks whose steps are replayed rank by rank; more would take too long."""

FULL_QUEUE = 512
"""A long launch is assumed to wait for space in the queue if at least this many launches are outstanding."""

ROUNDED_NS = 2_000
"""Times are rounded, some to a microsecond, so work may appear to start this long before its predecessor ends."""
