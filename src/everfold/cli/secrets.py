"""SQL text without its secrets: what is shown of a script, on a terminal or in a log, goes through here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from everfold.errors import Diagnostic
from everfold.sql.settings import is_secret

_OPTION = re.compile(r"'(?P<name>(?:[^'\n]|'')*)'\s*[^'\w\s]?\s*(?=')")
_VALUE = re.compile(r"\s*(?P<text>'(?:[^']|'')*(?:'|\Z))")
_HIDDEN = "******"


def _values(text: str) -> Iterator[re.Match[str]]:
    """The texts that stand behind names of secret options, quotes included: behind `=`, or whatever was typed in its place."""
    for option in _OPTION.finditer(text):
        if is_secret(option["name"]):
            value = _VALUE.match(text, option.end())
            while value is not None:
                yield value
                value = _VALUE.match(text, value.end())


def without_secrets(text: str) -> str:
    """The text with stars for the values of secret options, one for each character: all else stays where it was."""
    for value in _values(text):
        text = text[: value.start("text")] + re.sub(r"[^'\n]", "*", value["text"]) + text[value.end() :]
    return text


def shown(diagnostic: Diagnostic) -> str:
    """A diagnostic as text, without the secrets of the script that it quotes."""
    span = diagnostic.span
    if span is None or not span.text:
        return diagnostic.render()
    message = diagnostic.message
    for value in _values(span.text):
        message = message.replace(value["text"], f"'{_HIDDEN}'")
    return replace(diagnostic, message=message, span=replace(span, text=without_secrets(span.text))).render()


def command_line(arguments: Sequence[str]) -> str:
    """A command as it was typed, without secrets: those in SQL, all values of variables, and those of secret options."""
    told: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, _ = argument.partition("=")
        if before == "--var" or argument.startswith("--var=") or (before == "--conf" and is_secret(name)):
            told.append(f"{name}{equals}{_HIDDEN}")
        else:
            told.append(without_secrets(argument))
    return " ".join(told)
