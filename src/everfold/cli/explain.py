"""`everfold explain`: the plans of a script, without running it and without a JVM."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from everfold.cli.run import RunOptions, Script, create_session, note
from everfold.errors import UsageError, suggest_name

_CODE = re.compile(r"[A-Za-z]{3}\d{3}")


def is_rule(name: str) -> bool:
    """Return whether a name is the code of a rule and not a script file."""
    return _CODE.fullmatch(name) is not None and not Path(name).exists()


def explain_rule(code: str) -> None:
    """Print the page of a compatibility rule.

    Raises UsageError `unknown-rule` if no rule has that code.
    """
    from everfold.compat.rules import all_rules, find_rule

    rule = find_rule(code)
    if rule is None:
        near = suggest_name(code.upper(), [each.code for each in all_rules()])
        raise UsageError.of("unknown-rule", f"no rule has the code {code}", help=near)
    sys.stdout.write(f"{rule.code}: {rule.verdict.value}\n\n{rule.page}\n")


def explain(script: Script, options: RunOptions) -> None:
    """Print the plan of each query and INSERT of a script."""
    from everfold.connectors.validate import check_tables
    from everfold.plan.explain import explain as explain_plan
    from everfold.sql.planner import Submit

    session = create_session(options, script.folder)
    first = True
    for action in session.run(script.text, source=script.source):
        if not isinstance(action, Submit):
            continue
        check_tables(action.roots, streaming=action.settings.streaming, note=note)
        if not first:
            sys.stdout.write("\n")
        first = False
        sys.stdout.write(
            "\n\n".join(explain_plan(root, streaming=action.settings.streaming).rstrip("\n") for root in action.roots)
            + "\n"
        )
