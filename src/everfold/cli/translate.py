"""`everfold translate`: translate a script to the other dialect, and prove that plans are equal."""

from __future__ import annotations

import sys
from typing import Literal, TypeAlias

from everfold.cli.run import Script, note

Dialect: TypeAlias = Literal["flink", "lenses"]
_BROKERS = "defaults.topic.properties.bootstrap.servers"
_UNKNOWN_BROKERS = "${BROKERS}"
"""The brokers in a translation of a script that names none."""


def translate(script: Script, old: Dialect, new: Dialect) -> None:
    """Print the script in one dialect. Variables are not replaced.

    `old` is the dialect that it begins with; SET 'everfold.dialect' changes it.

    Raises the errors of the script; UnsupportedFeature `not-in-flink`, `not-in-lenses`,
    `not-one-plan`.
    """
    from everfold.connectors.registry import apply_connector
    from everfold.sql.planner import Session, Submit
    from everfold.sql.script import keep_variables, parse_script, sets_dialect
    from everfold.sql.translation import prove, to_flink, to_lenses

    variables, environment = keep_variables(script.text + _UNKNOWN_BROKERS)

    def session(dialect: Dialect) -> Session:
        return Session(
            {"everfold.dialect": dialect, _BROKERS: _UNKNOWN_BROKERS},
            variables,
            environment,
            connected=apply_connector,
            folder=script.folder,
        )

    statements = parse_script(script.text, script.source, old)
    if old == new and not any(map(sets_dialect, statements)):
        sys.stdout.write(script.text)
        return
    convert = to_flink if new == "flink" else to_lenses
    text, submits = convert(script.text, script.source, session(old))
    translated = [each for each in session("flink").run(text, source="the translation") if isinstance(each, Submit)]
    prove([root for each in submits for root in each.roots], [root for each in translated for root in each.roots])
    sys.stdout.write(text)
    note("both scripts have the same plan")
