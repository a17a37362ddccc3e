"""`%%everfold`: SQL in the cells of a notebook.

`%load_ext everfold` registers it. `%everfold` returns the environment that the cells use.
"""

from __future__ import annotations

import argparse
import shlex
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class

from everfold.compat.report import as_text
from everfold.errors import EverfoldError, UsageError
from everfold.jobs.change import ChangedJob, Decide, OnChange
from everfold.jobs.spec import JobSpec
from everfold.jobs.stop_signals import StopSignals
from everfold.notebook.display import show_text
from everfold.notebook.live_result import LiveResult
from everfold.notebook.plot import Plot
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import Collect
from everfold.sql.planner import Done, Show, Submit
from everfold.table.environment import TableEnvironment
from everfold.table.result import TableResult, string_result
from everfold.table.running import RunningJob, summarize


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError.of("wrong-option-value", f"%%everfold: {message}", help=self.format_usage().strip())


_PARSER = _Parser(prog="%%everfold", add_help=False)
_PARSER.add_argument("job", nargs="?", choices=["job"], help="run the INSERT of the cell in the background")
_PARSER.add_argument("--plot", action="store_true", help="plot the result")
_PARSER.add_argument("--env", metavar="NAME", help="a variable with the TableEnvironment to use")
_PARSER.add_argument("--into", metavar="NAME", help="a variable for the result")
_PARSER.add_argument("--state", metavar="FOLDER", help="the job directory")
_PARSER.add_argument("--on-change", choices=[str(each) for each in OnChange], default="refuse")


@magics_class
class EverfoldMagics(Magics):
    """The magics of everfold. One environment serves all cells, unless they name another."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._variables = shell.user_ns
        self._own: TableEnvironment | None = None

    @line_cell_magic
    def everfold(self, line: str, cell: str | None = None) -> Any:
        """Run a script in the cell: `%%everfold [job] [--plot] [--env NAME] [--into NAME]`.

        A query shows its rows as they arrive; interrupting the kernel stops it and keeps the last
        ones. `job` runs the script's INSERT in the background and returns its handle; `--state`
        names its directory, and `--on-change` says what to do when the query has changed, after the
        verdict on each column is shown. Without a cell, returns the environment.
        """
        try:
            options = _PARSER.parse_args(shlex.split(line))
            environment = self._environment(options.env)
            if cell is None:
                return environment
            result = _run_cell(environment, cell, options)
        except EverfoldError as error:
            show_text(str(error))
            return None
        if options.into:
            self._variables[options.into] = result
        return None if isinstance(result, _Shown) else result

    def _environment(self, name: str | None) -> TableEnvironment:
        if name is not None:
            found = self._variables.get(name)
            if not isinstance(found, TableEnvironment):
                raise UsageError.of("wrong-option-value", f"--env {name}: `{name}` is not a TableEnvironment")
            return found
        if self._own is None:
            self._own = TableEnvironment()
        return self._own


class _Shown(TableResult):
    """A result that is on the screen already."""


def _run_cell(environment: TableEnvironment, script: str, options: argparse.Namespace) -> TableResult | RunningJob:
    result: TableResult | RunningJob = string_result((), ())
    for action in environment.plan(script):
        match action:
            case Show():
                result = string_result(action.columns, action.rows)
            case Done():
                result = string_result((), (), action.message)
            case Submit():
                spec = environment.specify(
                    action, options.state, _show_verdict(OnChange(options.on_change)), script=script
                )
                result = _run_job(environment, action, spec, options)
    return result


def _run_job(
    environment: TableEnvironment, action: Submit, spec: JobSpec, options: argparse.Namespace
) -> TableResult | RunningJob:
    root = action.roots[0]
    if not isinstance(root, Collect):
        if options.job:
            return environment.start(action, spec)
        notes: list[str] = []
        with StopSignals(signal.SIGINT, stop_at_once=_interrupt) as stop:
            consent = replace(spec.consent, note=notes.append)
            finished = environment.run(replace(spec, stopping=stop.should_stop, consent=consent))
        return summarize(finished, notes)
    updating = is_updating(root.input) and spec.settings.streaming
    watchers: list[Callable[[LiveResult], None]] = [Plot(root.schema).show] if options.plot else []
    live = LiveResult(
        root.schema,
        zone=spec.settings.local_time_zone,
        updating=updating,
        bounded=environment.is_bounded(spec),
        watchers=watchers,
    )
    with StopSignals(signal.SIGINT, stop_at_once=_interrupt) as stop:
        environment.run(replace(spec, receive=live.write, stopping=stop.should_stop))
    live.finish()
    return _Shown(live.arrow(), schema=root.schema, zone=spec.settings.local_time_zone)


def _interrupt() -> NoReturn:
    """Interrupt the cell, at the second interruption of the kernel."""
    raise KeyboardInterrupt


def _show_verdict(choice: OnChange) -> Decide:
    """Return a decision that shows the verdict before it is carried out; a refusal contains it."""

    def decide(job: ChangedJob) -> OnChange:
        if choice is not OnChange.REFUSE:
            show_text(as_text(job.judgement))
        return choice

    return decide


def register(shell: InteractiveShell) -> None:
    """Register the magics, as `%load_ext everfold` does."""
    shell.register_magics(EverfoldMagics)
