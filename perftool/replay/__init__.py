"""The recorded steps as a graph of dependencies, replayed unchanged and with a change.

``recording`` takes a few steps out of the tables, ``graph`` links what happened in them, ``run`` replays the links.
"""
