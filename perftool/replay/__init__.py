"""Replays recorded steps as a graph of dependencies, with and without changes.

``recording`` loads a few steps from the tables, ``graph`` builds their dependencies, and ``run`` replays them.
"""
