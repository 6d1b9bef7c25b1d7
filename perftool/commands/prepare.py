"""What the commands that run rules do first: settings, then the rules these select."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.commands.numpy_first import load_numpy
from perftool.commands.options import Color, Given
from perftool.reporters.escape import no_commands

if TYPE_CHECKING:
    from perftool.engine.settings.settings import Settings
    from perftool.model.rule import Rule

# Where CI systems say the checkout is.
_ROOT_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@dataclass(frozen=True)
class Prepared:
    """The settings of a run and the rules to run, thresholds and severities already adjusted; ``known`` are all rules,
    selected or not."""

    settings: Settings
    rules: tuple[Rule, ...]
    warnings: tuple[str, ...]
    known: tuple[Rule, ...]


def prepare(paths: Sequence[str], config: Sequence[str], isolated: bool, given: Given, trust: bool = False) -> Prepared:
    """Settings for ``paths``, and their rules. Raises SettingsError and RuleError."""
    from perftool.engine.rules.pack import load_packs
    from perftool.engine.rules.selection import choose, redirect, require_known
    from perftool.engine.settings.settings import adjust, load_settings

    load_numpy()
    settings = load_settings(paths, config, isolated, given.as_keys(), trust)
    rules = adjust(load_packs(settings.rule_packs), settings.overrides)
    chosen = choose(rules, settings.selection)
    warnings = list(chosen.warnings)
    ignores = []
    for pattern, chosen_here in settings.per_file_ignores:
        redirected = redirect(chosen_here, rules)
        for selector in redirected.selectors:
            require_known(selector, rules)
        ignores.append((pattern, redirected.selectors))
        warnings += redirected.warnings
    return Prepared(replace(settings, per_file_ignores=tuple(ignores)), chosen.rules, tuple(warnings), tuple(rules))


def note(messages: Sequence[str], color: Color = Color.auto) -> None:
    """Say ``messages`` on stderr, one a line."""
    if messages:
        from perftool.reporters.console import make_console

        console = make_console(color.value, stderr=True)
        for message in messages:
            console.print(no_commands(message), markup=False, soft_wrap=True)


def project_root() -> Path:
    """What artefacts' paths are relative to: the CI checkout, the git repository, or the working directory."""
    here = Path.cwd()
    for variable in _ROOT_VARIABLES:
        root = os.environ.get(variable)
        if root and here.resolve().is_relative_to(Path(root).resolve()):
            return Path(root)
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
