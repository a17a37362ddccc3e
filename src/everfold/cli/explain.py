"""`everfold explain`: plans of a script, compatibility rules and error codes.

It runs nothing and needs no JVM.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from everfold.cli.run import RunOptions, Script, create_session, note
from everfold.errors import UsageError, suggest_name

if TYPE_CHECKING:
    from everfold.sql.planner import Submit

_RULE = re.compile(r"[A-Za-z]{3}\d{3}")
_ERROR = re.compile(r"[A-Za-z]+(-[A-Za-z]+)*")


def is_rule(name: str) -> bool:
    """Return whether a name is the code of a rule and not a script file."""
    return _RULE.fullmatch(name) is not None and not Path(name).exists()


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


def explain_error(name: str) -> bool:
    """Print the page of an error code. Return False if the name can only be a script.

    An existing file is a script. Raises UsageError `unknown-code` if no error has that code but one
    has a similar one.
    """
    from everfold.error_codes import all_codes, find_code

    if _ERROR.fullmatch(name) is None or Path(name).exists():
        return False
    entry = find_code(name.lower())
    if entry is None:
        near = suggest_name(name, [each.code for each in all_codes()])
        if near is None:
            return False
        raise UsageError.of("unknown-code", f"`{name}` is neither a file nor an error code", help=near)
    sys.stdout.write(f"{entry.code}: {entry.family}\n\n{entry.page}\n")
    return True


def explain(script: Script, options: RunOptions, format: Literal["text", "json"] = "text") -> None:
    """Print the plan of each query and INSERT of a script; as JSON, one document for each."""
    from everfold.jobs.preflight import check_jobs
    from everfold.sql.planner import Submit

    session = create_session(options, script.folder)
    actions = session.run(script.text, source=script.source)
    for number, submit in enumerate(action for action in actions if isinstance(action, Submit)):
        check_jobs([submit], script.folder, note=note)
        if number and format == "text":
            sys.stdout.write("\n")
        sys.stdout.write(session.hidden_values.hide_connectors(_explain_plans(submit, format)) + "\n")


def _explain_plans(submit: Submit, format: Literal["text", "json"]) -> str:
    from everfold.plan.execution_plan import format_execution_plan
    from everfold.plan.explain import explain as explain_plan

    streaming = submit.settings.streaming
    if format == "json":
        return format_execution_plan(submit.roots, streaming=streaming)
    return "\n\n".join(explain_plan(root, streaming=streaming) for root in submit.roots)
