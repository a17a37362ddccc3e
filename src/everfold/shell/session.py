"""The session of a shell: runs statements, each on the engine that can run it.

It needs no terminal: what it shows goes to a `Screen`. Queries run in a thread, so that the thread
of the user can cancel them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from everfold.activity import listen_to_activities
from everfold.cli.failures import explain_exception
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import CheckedTables, check_tables
from everfold.errors import EverfoldError, StateError, UnsupportedFeature
from everfold.jobs.answers import Inputs
from everfold.jobs.change import OnChange
from everfold.jobs.rewind import Consent
from everfold.jobs.spec import STOP_TIMEOUT_S, EngineName, Finished, JobSpec
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import Collect, Root
from everfold.plan.size import ScriptSize
from everfold.shell.changes import Decision, decide_change, find_change
from everfold.shell.engines import BackgroundSpark, Engines, QueryCanceledError
from everfold.shell.jobs import ShellJobs
from everfold.shell.options import ShellOptions
from everfold.shell.screen import ResultInfo, ResultView, Screen
from everfold.sql.planner import Done, Session, Show, Submit
from everfold.sql.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

ENGINE_OPTION = "everfold.engine"
_POLL_S = 0.02
_PATIENCE_S = 2.0
"""How long the user waits for a canceled query; it then ends in the background."""


class ShellSession:
    """Runs the statements that a user types. Errors are shown on the screen, not raised."""

    def __init__(self, screen: Screen, options: ShellOptions) -> None:
        self._screen = screen
        self._folder = options.folder
        self._canceled = threading.Event()
        self._uses_spark = False
        spark = {key: value for key, value in options.options.items() if key.startswith("spark.")}
        own = {key: value for key, value in options.options.items() if key not in spark}
        self.engines = Engines(options.master, spark)
        self.jobs = ShellJobs(options.jobs_folder, self._canceled.is_set)
        self.planner = Session(
            options=own,
            variables=options.variables,
            environment=os.environ,
            notes=screen.show_note,
            connected=apply_connector,
            folder=options.folder,
            import_functions=True,
            describe_scans=_describe_scans,
            jobs=self.jobs,
        )
        self.last_query = ""

    @property
    def settings(self) -> Settings:
        """The options in effect."""
        return self.planner.settings

    def cancel(self) -> None:
        """Cancel what runs in the foreground. Jobs in the background continue."""
        self._canceled.set()

    def choose_engine(self, name: str) -> None:
        """Choose the engine of queries. `auto`: memory where it can run them. Starts Spark.

        Raises SqlError `wrong-option-value`.
        """
        if name == "auto":
            self.planner.catalog.reset_option(ENGINE_OPTION)
        else:
            self.planner.catalog.set_option(ENGINE_OPTION, name)
        self.start_chosen_engine()

    def start_input(self) -> None:
        """Forget that the user has canceled an earlier input. Called once for each input."""
        self._canceled.clear()

    def run(self, text: str, source: str = "sql") -> bool:
        """Run the statements of a text in order, until one fails or the user cancels the input;
        return whether all have run.
        """
        if self._canceled.is_set():
            return False
        self.planner.catalog.work = ScriptSize()
        try:
            for action in self.planner.run(text, source):
                match action:
                    case Show():
                        self._screen.show_table(action.columns, action.rows)
                    case Done():
                        self._screen.show_message(action.message)
                        self.start_chosen_engine()
                    case Submit() if isinstance(action.roots[0], Collect):
                        self.last_query = f"{action.text};"
                        self._run_query(action, action.roots[0])
                    case Submit():
                        self._start_job(action)
                if self._canceled.is_set():
                    return False
        except QueryCanceledError:
            self._screen.show_message("The query was canceled.")
            return False
        except Exception as error:
            self.show_failure(error)
            return False
        return True

    def show_failure(self, error: Exception) -> None:
        """Show any exception, as the command line does."""
        explained = explain_exception(error)
        if isinstance(explained, str):
            self._screen.show_note(explained)
        else:
            self._screen.show_error(explained)

    def sleep(self, seconds: float) -> bool:
        """Wait for some time; return False if the user has canceled it."""
        return not self._canceled.wait(seconds)

    def stop_jobs(self) -> None:
        """Stop the jobs of this shell after their running batches. Ctrl-C stops the waiting."""
        self.jobs.stop_all()

    def report_jobs(self) -> None:
        """Show what the jobs in the background have reported since the last call."""
        for news in self.jobs.news():
            if isinstance(news, str):
                self._screen.show_note(news)
            else:
                self.show_failure(news)

    def start_chosen_engine(self) -> None:
        """Start Spark in the background if it is the chosen engine."""
        if self.settings.engine == "spark" and self.engines.spark_state in ("off", "failed"):
            self._screen.show_message("Spark starts in the background.")
            self.engines.start_spark()

    # --- queries ----------------------------------------------------------------------------------

    def _run_query(self, submit: Submit, root: Collect) -> None:
        spec = self._specify(submit)
        engine = self._choose_for(spec)
        view = self._open_view(submit, root, engine, spec)
        try:
            finished = self._run_in_thread(spec, engine, view)
        except UnsupportedFeature as error:
            # Some functions are found to be missing only when the plan is lowered.
            if engine == "spark" or self.settings.engine is not None:
                raise
            self._offer_spark(error)
            view = self._open_view(submit, root, "spark", spec)
            finished = self._run_in_thread(spec, "spark", view)
        view.finish()
        for why, rows in {**finished.dropped_rows, "late": finished.late_rows}.items():
            if rows:
                self._screen.show_note(f"{rows:,} rows dropped: {why}")

    def _open_view(self, submit: Submit, root: Collect, engine: EngineName, spec: JobSpec) -> ResultView:
        runner = self.engines.memory() if engine == "memory" else self.engines.spark
        return self._screen.open_result(
            ResultInfo(
                schema=root.schema,
                settings=submit.settings,
                is_updating=is_updating(root.input) and submit.settings.streaming,
                is_bounded=runner.is_bounded(spec),
            )
        )

    def _specify(self, submit: Submit) -> JobSpec:
        return JobSpec(
            roots=submit.roots,
            settings=submit.settings,
            base_folder=self._folder,
            name="query",
            sql=submit.text,
            tables=self._check(submit),
            stop_timeout_s=0.0,
            consent=Consent(note=self._screen.show_note),
        )

    def _check(self, submit: Submit) -> CheckedTables:
        return check_tables(submit.roots, streaming=submit.settings.streaming, note=self._screen.show_note)

    def _choose_for(self, spec: JobSpec) -> EngineName:
        """Return the engine for a query: the chosen one, else memory where it can read the tables.

        Raises QueryCanceledError if the user does not want Spark.
        """
        chosen = self.settings.engine
        if chosen is not None:
            return chosen
        try:
            self.engines.memory().check_readable(spec)
        except UnsupportedFeature as error:
            self._offer_spark(error)
            return "spark"
        return "memory"

    def _offer_spark(self, error: EverfoldError) -> None:
        """Ask whether a query that the memory engine cannot run may run on Spark, once."""
        if not self._uses_spark:
            answers = {"yes": "on Spark, as all such queries from now on", "no": "not at all"}
            if self._screen.ask(f"{error.diagnostics[0].message}. Run the query on Spark?", answers, "yes") == "no":
                raise QueryCanceledError
            self._uses_spark = True

    def _run_in_thread(self, spec: JobSpec, engine: EngineName, view: ResultView) -> Finished:
        """Run a query until it ends or the user cancels it.

        Raises EverfoldError, and QueryCanceledError after the rows so far were shown. A query that
        has not ended soon after it was canceled ends in the background.
        """
        run = _QueryRun(self.engines, engine, replace(spec, progress=view.report), view)
        with listen_to_activities(view.say):
            run.thread.start()
            while run.thread.is_alive() and not self._canceled.is_set():
                run.thread.join(_POLL_S)
        if self._canceled.is_set():
            run.cancel(time.monotonic() + _PATIENCE_S)
            (view.finish if run.has_rows else view.discard)()
            raise QueryCanceledError
        if run.error is not None:
            view.discard()
            raise run.error
        assert run.finished is not None
        return run.finished

    # --- jobs -------------------------------------------------------------------------------------

    def _start_job(self, submit: Submit) -> None:
        """Start the job of an INSERT or a statement set, or change it."""
        name = submit.settings.pipeline_name or "+".join(submit.names)
        chosen = submit.settings.engine or "spark"
        decision = self._decide_change(name, submit) if chosen == "spark" else Decision(how=OnChange.ACCEPT)
        if decision.how is OnChange.REFUSE:
            self._screen.show_message(f"Job `{name}` is unchanged.")
            return
        spec = replace(
            self._specify(submit),
            decide=lambda _: decision.how,
            consent=Consent(duplicates=decision.duplicates, sinks=decision.sinks),
            stop_timeout_s=STOP_TIMEOUT_S,
        )
        engine = self.engines.memory() if chosen == "memory" else BackgroundSpark(self.engines)
        job = self.jobs.start(name, spec, engine)
        self._screen.show_message(
            f"Job `{name}` runs in the background. SHOW JOBS lists the jobs; STOP JOB '{name}' stops it."
        )
        if submit.settings.waits_for_jobs and not self.jobs.wait(job):
            self._screen.show_message(f"Job `{name}` continues in the background.")

    def _decide_change(self, name: str, submit: Submit) -> Decision:
        """Decide how a job continues, with the user if its query has changed.

        Raises StateError `job-is-running` if this shell runs the job with this query.
        """
        running = self.jobs.find_running(name)
        manifest = self.jobs.manifest(name) if submit.settings.streaming else None
        change = None
        if manifest is not None:
            inputs = Inputs.of(self._check(submit), self._folder)
            change = find_change(self.jobs.open_dir(name), manifest, submit, inputs, self.jobs.find_behind(name))
        if change is None:
            if running is not None:
                raise StateError.of(
                    "job-is-running", f"job `{name}` runs in this shell already", help="SHOW JOBS shows its status"
                )
            return Decision(how=OnChange.ACCEPT)
        decision = decide_change(self._screen, name, change)
        if decision.how is not OnChange.REFUSE and running is not None:
            self._screen.show_message(f"Job `{name}` stops after its running batch.")
            running.running.request_stop()
            if not self.jobs.wait(running):
                raise QueryCanceledError
            running.is_over = True
        return decision


class _QueryRun:
    """One run of a query in a thread."""

    def __init__(self, engines: Engines, engine: EngineName, spec: JobSpec, view: ResultView) -> None:
        self._engines, self._engine, self._view = engines, engine, view
        self._is_canceled = threading.Event()
        self._spec = replace(spec, receive=self._receive, stopping=self._is_canceled.is_set)
        self._cancel_jobs: Callable[[], None] = lambda: None
        self.finished: Finished | None = None
        self.error: Exception | None = None
        self.has_rows = False
        self.thread = threading.Thread(target=self._run, name="everfold-query", daemon=True)

    def _run(self) -> None:
        try:
            if self._engine == "memory":
                self.finished = self._engines.memory().run(self._spec)
                return
            self._engines.wait_for_spark(self._is_canceled.is_set)
            self._cancel_jobs = self._engines.spark.tag_jobs()
            self.finished = self._engines.run_on_spark(self._spec)
        except Exception as error:
            self.error = error

    def _receive(self, rows: pa.Table) -> None:
        if rows.num_rows and not self._is_canceled.is_set():
            self.has_rows = True
            self._view.write(rows)

    def cancel(self, deadline: float) -> None:
        """Cancel the query, and wait until it has ended or the deadline is reached."""
        self._is_canceled.set()
        self.thread.join(_POLL_S)
        self._cancel_jobs()
        self.thread.join(max(0.0, deadline - time.monotonic()))


def _describe_scans(roots: Sequence[Root], settings: Settings) -> str:
    from everfold.spark.scan_report import describe_scans

    return describe_scans(roots, settings)
