"""Code shared by the commands: loads settings and rules, finds input files, and analyses them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perftool.commands.numpy_first import load_numpy
from perftool.commands.options import CliSettings
from perftool.commands.output import print_notes
from perftool.commands.progress import progress
from perftool.commands.settings import show_settings
from perftool.errors import InputError, PerfToolError
from perftool.output_file import require_apart

if TYPE_CHECKING:
    from perftool.engine.analysis import Run
    from perftool.engine.ranks.schedule import Schedule
    from perftool.engine.rules.selection import Selector
    from perftool.engine.settings.settings import Settings
    from perftool.model.rule import Rule
    from perftool.readers.discover import Inputs

# Environment variables of CI systems that name the checkout folder.
_ROOT_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@dataclass(frozen=True)
class RuleChoice:
    """The rules to run, with adjusted thresholds and severities, and warnings about their selection. ``known`` contains
    all rules, selected or not. ``file_ignores`` are the per-file ignores from the settings, with the codes and names of
    retired rules replaced by the codes of their successors.
    """

    rules: tuple[Rule, ...]
    warnings: tuple[str, ...]
    known: tuple[Rule, ...]
    file_ignores: tuple[tuple[str, tuple[Selector, ...]], ...]


class Session:
    """The options in ``cli``, and the configuration that applies to the inputs ``paths``.

    The author of the inputs must not be able to change the verdict of a ``gate``, so a gate ignores configurations
    next to the inputs unless the user trusts them. With --show-settings, the constructor prints the settings and ends
    the program. Raises SettingsError.
    """

    def __init__(self, cli: CliSettings, paths: Sequence[str], *, gate: bool = False) -> None:
        from perftool.engine.settings.settings import load_settings
        from perftool.engine.settings.settings_file import passed_over

        load_numpy()
        places = paths or [*cli.keys.get("log", ()), *cli.keys.get("metrics", ())]
        self.cli = cli
        self._gate = gate
        gate = gate and not (cli.trust_config or cli.isolated)
        self.settings: Settings = load_settings(places, cli.config, cli.isolated, cli.keys, cli.trust_config, gate=gate)
        if gate and not any(map(os.path.isfile, cli.config)) and (unread := passed_over(places)):
            self.note(
                [f"{unread} is ignored, because the author of the inputs may have written it; --config FILE reads it"]
            )
        if cli.show_settings:
            show_settings(self.settings)
            raise typer.Exit

    @cached_property
    def choice(self) -> RuleChoice:
        """The rules that the settings select. Raises RuleError."""
        from perftool.engine.rules.pack import load_packs
        from perftool.engine.rules.selection import choose, redirect, require_known
        from perftool.engine.settings.settings import adjust

        rules = adjust(load_packs(self.settings.rule_packs), self.settings.overrides)
        chosen = choose(rules, self.settings.selection)
        warnings, ignores = list(chosen.warnings), []
        for pattern, chosen_here in self.settings.file_ignores:
            redirected = redirect(chosen_here, rules)
            for selector in redirected.selectors:
                require_known(selector, rules)
            ignores.append((pattern, redirected.selectors))
            warnings += redirected.warnings
        return RuleChoice(chosen.rules, tuple(warnings), tuple(rules), tuple(ignores))

    @property
    def texts(self) -> tuple[str, ...]:
        """The logs and metrics files of the run."""
        return (*self.settings.log, *self.settings.metrics)

    def inputs(self, paths: Sequence[str], outputs: Sequence[str | None] = (), *, each: bool = False) -> Inputs:
        """Find the files of the run at ``paths`` that the input options select, and print notes on files left out.

        With ``each``, the files may belong to several runs. Raise PerfToolError if there is nothing to read, if
        ``require_apart`` rejects ``outputs``, and if a gate would not read a trace that the user named.
        """
        from perftool.readers.discover import find_inputs

        settings, any_run = self.settings, each and self.settings.run is None
        if not paths and not self.texts:
            raise PerfToolError(f"{self.cli.command} needs PATHS: files, folders, globs, or '-'")
        found = find_inputs(
            paths, self.texts, settings.exclude, as_one_run=settings.as_one_run or any_run, run=settings.run
        )
        if self._gate:
            _require_named(found)
        found = self._described(found)
        self.require_apart(outputs, found.files)
        self.note(found.notes)
        return found

    def require_apart(self, outputs: Sequence[str | None], inputs: Sequence[str] = ()) -> None:
        """Raise PerfToolError if two of ``outputs`` are the same file, or if one is also read: an input, a
        configuration, a rule or the baseline.
        """
        from perftool.engine.rules.pack import pack_files

        settings = self.settings
        rules = (str(file) for pack in settings.rule_packs for file in pack_files(Path(pack)))
        baseline = [str(settings.baseline)] if settings.baseline else []
        require_apart(outputs, [*inputs, *settings.files, *rules, *baseline])

    def side(self, path: str, run: str | None) -> Inputs:
        """Find the files of one side of a comparison, except those that options name (logs, captures)."""
        from perftool.readers.discover import find_inputs

        found = find_inputs([path], (), self.settings.exclude, as_one_run=self.settings.as_one_run, run=run)
        if self._gate:
            _require_named(found)
        self.note(found.notes)
        return replace(self._described(found), captures=())

    def alone(self, trace: str) -> Inputs:
        """Find the files of a run that consists of ``trace`` only."""
        from perftool.readers.discover import find_inputs

        # The name of a file may look like a pattern that matches other files.
        return self._described(find_inputs([trace], literal=True))

    def _described(self, found: Inputs) -> Inputs:
        """Add the captures and the device from the settings to ``found``."""
        return replace(found, captures=self.settings.capture, device=self.settings.device)

    def note(self, messages: Sequence[str]) -> None:
        """Print ``messages`` on stderr, unless --quiet or --silent is given."""
        print_notes(() if self.cli.is_quiet else messages, self.cli.color)


def _require_named(found: Inputs) -> None:
    if found.unread_parts:
        from perftool.readers.discover import unread_parts_text

        raise InputError(
            f"{unread_parts_text(found.unread_parts)}; a gate needs every rank, so name what to read, or leave the "
            "parts out with --exclude '*.part'"
        )
    if found.doubts:
        doubt, *rest = found.doubts
        others = f" and {len(rest)} more" if rest else ""
        raise InputError(f"{doubt.file}{others}: {doubt.why}; a gate does not skip files by itself, so {doubt.way}")
    if not found.unread:
        return
    first, more = found.unread[0], len(found.unread) - 1
    others = f", and {more} more" if more else ""
    raise InputError(
        f"{first}{others}; a gate does not skip files by itself, so check each recording in a separate call, or pick "
        "one with --run NAME"
    )


@contextmanager
def open_run(
    session: Session, inputs: Inputs, rules: Sequence[Rule] | None = None, schedule: Schedule | None = None
) -> Iterator[Run]:
    """Analyse ``inputs`` with ``rules`` and ``schedule``, by default those of ``session``."""
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.choice import choose_schedule

    chosen = session.choice.rules if rules is None else rules
    where = schedule or choose_schedule(inputs.traces, session.settings.jobs, session.cli.scheduler)
    with progress(session.cli.is_quiet) as show, analysed(inputs, chosen, where, show) as run:
        yield run


def project_root() -> Path:
    """Find the base of relative paths in outputs: the CI checkout, the git repository, or the working directory."""
    here = Path.cwd()
    for variable in _ROOT_VARIABLES:
        root = os.environ.get(variable)
        if root and here.resolve().is_relative_to(Path(root).resolve()):
            return Path(root)
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
