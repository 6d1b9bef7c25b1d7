"""The recorded steps as a graph of dependencies, replayed unchanged and with a change.

``recording`` loads a few steps from the tables, ``graph`` builds their dependencies, ``run`` replays them.
"""
