"""Replays the recorded steps as a graph of dependencies, unchanged and with changes.

``recording`` loads a few steps from the tables, ``graph`` builds their dependencies, ``run`` replays them.
"""
