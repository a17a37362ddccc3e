"""Which options are secret, and texts without their values: what is shown of a script, in an error, on a terminal or in a log, goes through here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "******"
_NAMES = (
    "password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "token", "basic-auth",
    "jaas.config", "http-headers",
)  # fmt: skip
_OPTION = re.compile(r"'(?P<name>(?:[^'\n]|'')*)'\s*[^'\w\s]?\s*(?=')")
_SET = re.compile(r"\bSET\s+(?P<name>[\w.`-]+)\s*=\s*(?P<text>'(?:[^']|'')*(?:'|\Z)|[^\s;'][^;\n]*)", re.I)
"""SET of Lenses SQL, whose names and values need no quotes."""
_VALUE = re.compile(r"\s*(?P<text>'(?:[^']|'')*(?:'|\Z))")


def is_secret(key: str) -> bool:
    """Whether the value of an option must not be shown, by the rule that Flink has: its name says so."""
    return any(part in key.lower() for part in _NAMES)


def secret_values(text: str) -> Iterator[re.Match[str]]:
    """The texts (group `text`) that stand behind names of secret options, quotes included: behind `=`, or whatever was typed in its place."""
    yield from (found for found in _SET.finditer(text) if is_secret(found["name"]))
    for option in _OPTION.finditer(text):
        if is_secret(option["name"]):
            value = _VALUE.match(text, option.end())
            while value is not None:
                yield value
                value = _VALUE.match(text, value.end())


def without_secrets(text: str) -> str:
    """The text with stars for the values of secret options, one for each character: all else stays where it was."""
    for value in secret_values(text):
        text = text[: value.start("text")] + re.sub(r"[^'\n]", "*", value["text"]) + text[value.end() :]
    return text


def command_line(arguments: Sequence[str]) -> str:
    """A command as it was typed, without secrets: those in SQL, all values of variables, and those of secret options."""
    told: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, _ = argument.partition("=")
        if before == "--var" or argument.startswith("--var=") or (before == "--conf" and is_secret(name)):
            told.append(f"{name}{equals}{HIDDEN}")
        else:
            told.append(without_secrets(argument))
    return " ".join(told)
