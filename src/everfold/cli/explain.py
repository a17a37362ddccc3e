"""`everfold explain`: what a script would run, without running it and without a JVM."""

from __future__ import annotations

import sys

from everfold.cli.run import RunOptions, Script, note, session_of


def explain(script: Script, options: RunOptions) -> None:
    """Prints the plan of each query and INSERT of a script."""
    from everfold.connectors.checks import check_tables
    from everfold.plan.explain import explain as explained
    from everfold.sql.planner import Submit

    session = session_of(options, script.folder)
    first = True
    for action in session.run(script.text, source=script.source):
        if not isinstance(action, Submit):
            continue
        check_tables(action.roots, streaming=action.settings.streaming, note=note)
        if not first:
            sys.stdout.write("\n")
        first = False
        sys.stdout.write(
            "\n\n".join(explained(root, streaming=action.settings.streaming).rstrip("\n") for root in action.roots)
            + "\n"
        )
