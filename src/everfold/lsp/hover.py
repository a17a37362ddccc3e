"""What an editor shows about a word: types, tables, functions, options, errors."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.aggregates import registry as aggregates
from everfold.completion.engine import Completer
from everfold.completion.words import Kind, split_words
from everfold.error_codes import find_code
from everfold.errors import Span
from everfold.lsp.analysis import Analysis
from everfold.lsp.names import Reference, describe_entry, find_definition, find_entry, find_reference
from everfold.plan.expressions import walk
from everfold.plan.nodes import GroupAggregate, OverAggregate, WindowAggregate
from everfold.plan.parts import expressions_of
from everfold.plan.walk import walk_plan
from everfold.sql.functions import registry as functions
from everfold.types import AnyType, DataType


def describe(analysis: Analysis, offset: int) -> tuple[str, Span] | None:
    """Return what is known about an offset as Markdown, and the range that it is about."""
    reference = find_reference(analysis, offset)
    parts: list[tuple[str, Span]] = [
        (_error_page(each.code), each.span)
        for each in analysis.errors
        if each.span is not None and each.span.start <= offset < max(each.span.end, each.span.start + 1)
    ]
    if reference is not None and (text := _describe_reference(analysis, reference)):
        parts.append((text, reference.span))
    elif (typed := find_type(analysis, offset)) is not None:
        span, type_ = typed
        parts.append((f"```sql\n{span.text[span.start : span.end]}: {type_.sql}\n```", span))
    elif (option := _describe_option(analysis, offset)) is not None:
        parts.append(option)
    if not parts:
        return None
    return "\n\n---\n\n".join(text for text, _ in parts if text), parts[0][1]


def _error_page(code: str) -> str:
    entry = find_code(code)
    return "" if entry is None else f"**{code}**\n\n{entry.page}"


def _describe_reference(analysis: Analysis, reference: Reference) -> str:
    match reference.kind:
        case "table":
            entry = find_entry(analysis, reference.name)
            return "" if entry is None else describe_entry(entry)
        case "function":
            return describe_function(reference.name)
        case _:
            typed = find_type(analysis, reference.span.start)
            if typed is not None:
                return f"```sql\n{reference.name}: {typed[1].sql}\n```"
            declared = find_definition(analysis, reference)
            return "" if declared is None else f"```sql\n{declared.text[declared.start : declared.end]}\n```"


def describe_function(name: str) -> str:
    """Return the calls and the meaning of a built-in function, as Markdown; empty if unknown."""
    key = name.upper()
    if (entry := functions.lookup(key)) is not None:
        return f"```sql\n{entry.usage or key}\n```\n\n{entry.doc}"
    if (aggregate := aggregates.lookup(key)) is not None:
        meaning = (type(aggregate).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        return f"```sql\n{signature_of(key)}\n```\n\n{' '.join(meaning.split())}"
    return ""


def signature_of(name: str) -> str:
    """Return how a built-in function is called; empty if it is unknown."""
    if (entry := functions.lookup(name)) is not None:
        return entry.usage
    if (aggregate := aggregates.lookup(name)) is not None:
        least, most = aggregate.arity
        arguments = [f"<ARGUMENT {number}>" for number in range(1, most + 1)] if most > 1 else ["<ANY>"] * most
        shown = [each if at < least else f"[{each}]" for at, each in enumerate(arguments)]
        return f"{name}({', '.join(shown)})"
    return ""


def find_type(analysis: Analysis, offset: int) -> tuple[Span, DataType] | None:
    """Return the smallest expression at an offset that has a type."""
    found = [
        (span, type_)
        for span, type_ in _typed_spans(analysis)
        if span.text == analysis.text and span.start <= offset <= span.end and not isinstance(type_, AnyType)
    ]
    return min(found, key=lambda each: each[0].end - each[0].start, default=None)


def _typed_spans(analysis: Analysis) -> Iterator[tuple[Span, DataType]]:
    for root in analysis.roots:
        for node in walk_plan(root.input):
            for expression in expressions_of(node):
                yield from ((each.span, each.type) for each in walk(expression) if each.span is not None)
            if isinstance(node, GroupAggregate | OverAggregate | WindowAggregate):
                yield from ((call.span, call.type) for call in node.calls if call.span is not None)


def _describe_option(analysis: Analysis, offset: int) -> tuple[str, Span] | None:
    """Return the meaning of the option whose name, a string, is at an offset."""
    for word in split_words(analysis.text):
        end = word.start + len(word.text)
        if word.kind is Kind.STRING and word.start <= offset <= end:
            before = analysis.text[: word.start + 1]
            options = Completer(analysis.session.catalog).complete(before)
            meaning = next((each.meaning for each in options if each.text == word.content), "")
            span = analysis.span(word.start, end)
            return (f"`{word.content}`: {meaning}", span) if meaning else None
    return None
