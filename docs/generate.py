"""Writes the reference pages out of the registries: functions.md, options.md, connectors.md, rules.md, errors.md, metrics.md, cli.md, and the JSON schema of case files. `make docs` rewrites them; a test compares."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from everfold.aggregates import registry as aggregates
from everfold.cli.main import everfold
from everfold.compat.rules import all_rules
from everfold.connectors import registry as connectors
from everfold.connectors.formats import registry as formats
from everfold.connectors.options import Option
from everfold.error_codes import TOPICS
from everfold.metrics.registry import BATCH_DURATION, BATCH_DURATION_HELP, JOB, MEMORY, MEMORY_HELP, METRICS
from everfold.plan.nodes import Table
from everfold.sql.functions import registry as functions
from everfold.sql.functions.entry import Unsupported
from everfold.sql.settings import FAMILIES, OPTIONS, TOPIC_PROPERTIES
from everfold.testing.case_schema import make_schema

HERE = Path(__file__).parent
_MADE = "<!-- made by docs/generate.py from the registries: do not edit -->"

_HELP_WIDTH = 100


def _cell(text: object) -> str:
    return str(text).replace("\n", " ").replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def functions_page() -> Iterator[str]:
    """Aggregate and scalar functions."""
    yield from ("# Functions", "", _MADE, "", "## Aggregate functions", "")
    yield "Each takes `FILTER (WHERE …)` and, where that makes sense, `DISTINCT`. Types and results are Flink's."
    yield ""
    yield from _table(("function", "what it means"), map(_aggregate, aggregates.names()))
    yield from ("", "## Aggregate functions that Lenses SQL brings", "")
    yield "Its own names, where they differ, are in [Lenses SQL](lenses.md)."
    yield ""
    yield from _table(("function", "what it means"), map(_aggregate, aggregates.names("lenses")))
    yield from (
        "",
        "## Functions of OVER windows",
        "",
        "In addition to the aggregate functions. They take no frame.",
        "",
    )
    yield from _table(("function", "what it means"), map(_aggregate, aggregates.window_function_names()))
    yield from ("", "## Scalar functions and operators", "")
    yield from _table(
        ("function", "what it means"),
        (
            (_code(entry.usage or entry.name), entry.doc + _lacks(entry.spark, entry.duckdb))
            for entry in functions.entries()
        ),
    )


def _aggregate(name: str) -> tuple[str, str]:
    return _code(name), (type(aggregates.lookup(name)).__doc__ or "").strip().split("\n")[0]


def _lacks(spark: object, duckdb: object) -> str:
    missing = [
        (name, each.reason)
        for name, each in (("Spark", spark), ("the memory engine", duckdb))
        if isinstance(each, Unsupported)
    ]
    return "".join(f" Not on {name}: {why}." for name, why in missing)


def options_page() -> Iterator[str]:
    """Options of SET."""
    yield from ("# Options", "", _MADE, "")
    yield "Set by `SET 'key' = 'value'`, by `--conf key=value`, or under `options` of a case file. Options of Spark's (`spark.*`) go to `--conf` only."
    yield from ("", "## Options with a meaning", "")
    meant = [option for option in OPTIONS.values() if option.meaning]
    yield from _table(
        ("option", "default", "meaning"), ((_code(o.key), _code(o.default or ""), o.meaning) for o in meant)
    )
    yield from ("", "## Topics of Lenses SQL", "")
    yield "`SET defaults.topic.<property> = value` for all, `SET topic.<name>.<property> = value` for one, before it is declared or written."
    yield ""
    yield from _table(("property", "meaning"), ((_code(o.key), o.meaning) for o in TOPIC_PROPERTIES.values()))
    yield from ("", "## Options of Flink's that are accepted", "")
    yield "They change nothing here; setting one gives a note. Where only one value is named, any other is refused."
    yield ""
    rest = [option for option in OPTIONS.values() if not option.meaning]
    only = [(_code(o.key) + (f" = `{str(o.only).lower()}`" if o.only is not None else ""), o.why) for o in rest]
    yield from _table(("option", "why"), [*only, *((f"`{family}…`", why) for family, why in FAMILIES.items())])


def connectors_page() -> Iterator[str]:
    """Connectors and formats with their options."""
    yield from ("# Connectors", "", _MADE, "")
    yield "Named and configured as Flink's: `WITH ('connector' = 'filesystem', …)`. Unknown options are refused, with the nearest name."
    yield "Relative paths start at the folder of the script."
    for name in connectors.connector_names(refused=True):
        connector = connectors.get_connector(name)
        yield from ("", f"## {name}", "")
        if connector.meaning:
            yield from (_sentence(connector.meaning) + _more(name), "")
        table = Table(name="t", columns=(), options=(("connector", name),))
        yield from _options(option for option in connector.options(table).options if option.name != "connector")
    for name in formats.NAMES:
        options = formats.options_of(name).add_prefix(f"{name}.").options
        if options:
            yield from ("", f"## Format {name}", "")
            if more := _more(name):
                yield from (more.strip(), "")
            yield from _options(options)


def _more(name: str) -> str:
    """A link to the page of a connector or format, if it has one."""
    return f" [More](connectors/{name}.md)." if (HERE / "connectors" / f"{name}.md").exists() else ""


def _options(options: Iterable[Option]) -> Iterator[str]:
    """A table of the options that do something, and a line with those that do not."""
    listed = list(options)
    used = [o for o in listed if o.note is None]
    if used:
        yield from _table(
            ("option", "of a", "takes", "default", "meaning"),
            (
                (
                    _code(o.name) + (" (required)" if o.required else ""),
                    "source, sink" if o.role == "both" else o.role,
                    o.type if isinstance(o.type, str) else " or ".join(map(_code, o.type)),
                    _code(o.default or ""),
                    _sentence(o.meaning),
                )
                for o in used
            ),
        )
    if len(used) < len(listed):
        rest = ", ".join(_code(o.name) for o in listed if o.note is not None)
        yield from ("", f"Accepted for Flink's sake, without effect here: {rest}.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def rules_page() -> Iterator[str]:
    """The rules of state compatibility."""
    yield from ("# Rules of state compatibility", "", _MADE, "")
    yield "What [`everfold check`](changing-queries.md) finds, by its code. `everfold explain CODE` prints the same."
    for rule in all_rules():
        yield from ("", f"## {rule.code}: {rule.verdict.value}", "", rule.page)


def errors_page() -> Iterator[str]:
    """The error codes."""
    yield from ("# Error codes", "", _MADE, "")
    yield "Each error has a code, as in `error[too-complex]: …`. `everfold explain CODE` prints its entry on this page."
    yield "Codes are permanent. A failed command exits with the code of the entry: 2 if nothing has been started, 1 otherwise."
    yield ""
    for topic, _ in TOPICS:
        yield f"- [{topic}](#{re.sub(r'[^a-z ]', '', topic.lower()).replace(' ', '-')})"
    for topic, entries in TOPICS:
        yield from ("", f"## {topic}")
        for entry in entries:
            yield from ("", f"### {entry.code}", "", f"*{entry.family}*", "", entry.page)


def metrics_page() -> Iterator[str]:
    """The metrics of `--metrics-port`."""
    yield from ("# Metrics", "", _MADE, "")
    yield "What `everfold run --metrics-port` serves; [Monitoring](monitoring.md) has the recipes. Times are seconds since 1970, so"
    yield "`time() - everfold_watermark_timestamp_seconds` is a lag. Labels never contain keys or values of rows."
    yield ""
    rows: list[tuple[str, str, tuple[str, ...], str]] = [
        (metric.series, metric.kind, (JOB, *metric.labels), metric.help) for metric in METRICS
    ]
    rows.append((BATCH_DURATION, "histogram", (JOB,), BATCH_DURATION_HELP))
    rows.append((MEMORY, "gauge", ("process",), MEMORY_HELP))
    yield from _table(
        ("metric", "kind", "labels", "meaning"),
        ((_code(name), kind, ", ".join(map(_code, labels)), text) for name, kind, labels, text in rows),
    )


def case_schema() -> Iterator[str]:
    yield json.dumps(make_schema(), indent=2)


def cli_page() -> Iterator[str]:
    """The commands and their options."""
    yield from ("# Commands", "", _MADE, "")
    yield "What `everfold COMMAND --help` prints. A command exits with 0, or with the code of its [error](errors.md): 2 if nothing has been started, 1 otherwise. `check` has [exit codes](changing-queries.md) of its own."
    group = click.Context(everfold, info_name="everfold", terminal_width=_HELP_WIDTH, **everfold.context_settings)
    for name, command in sorted(everfold.commands.items()):
        context = click.Context(command, parent=group, info_name=name)
        yield from ("", f"## everfold {name}", "", "```text", command.get_help(context), "```")


PAGES = {
    "functions.md": functions_page,
    "options.md": options_page,
    "connectors.md": connectors_page,
    "rules.md": rules_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "../editors/vscode/case.schema.json": case_schema,
    "cli.md": cli_page,
}


def text(page: str) -> str:
    """What a page should hold."""
    return "\n".join(PAGES[page]()) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        (HERE / page).write_text(text(page), encoding="utf-8")
        sys.stdout.write(f"{HERE / page}\n")
