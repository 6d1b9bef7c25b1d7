"""Recipes that are looked up in vain against recipes that are there."""

from __future__ import annotations

from perftool.bench.harness.case import simulated_only

BENCHMARK = simulated_only(
    name="recipe_cache",
    rules=("RCP105",),
    summary="Lengths padded to a few instead of a new graph for each",
)
