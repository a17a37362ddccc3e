"""Values of the environment that scripts name: what is shown instead of them.

An option may be `'${env:NAME}'`. Messages, logs and statements that show options show the text of
the script, never the value of the variable.

A value is replaced where it stands as a whole: in quotes, or between spaces and punctuation. A
value that is a plain word is only replaced in quotes, unless its variable is named like a secret:
the messages of everfold quote all values, and their own words are kept.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")
_QUOTED_VALUE = re.compile(r"'((?:[^']|'')*)'")
_CONNECTOR = re.compile(r"'connector'\s*=\s*'((?:[^']|'')*)'")
_CONNECTOR_IN_PLAN = re.compile(r"(?<=connector=\[)[^\]]*(?=\])")
_QUOTED = re.compile(r"`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"")
_SEPARATORS = re.compile(r"[/:?&=,;@\s]+")
_VARIABLE_OR_SEPARATORS = re.compile(r"(\$\{env:[^}]*\}|[/:?&=,;@\s]+)")
_PLAIN_WORD = re.compile(r"[a-z]{1,11}(?:[-_ ][a-z]{1,11})*|\d{1,5}|[A-Z]{1,8}")
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|key|credential|auth", re.I)
_SHORT = 4
"""Values of fewer characters are only replaced if nothing else is in the quotes."""
_MAX_VALUES = 2_000
"""Different values and parts that are kept. With more, words are not spared."""
_SHORTENED = 24
"""Characters of a long value from which it is recognized if the rest is cut off."""


@dataclass(frozen=True, slots=True)
class _Hidden:
    """A value, or a part of one, and what is shown instead."""

    value: str
    shown: str
    is_word: bool

    def is_in(self, text: str, lowered: str) -> bool:
        """Return whether a text, which is also given in lower case, may have the value."""
        return self.value.lower() in lowered or (len(self.value) > _SHORTENED and self.value[:_SHORTENED] in text)

    def replace_in(self, text: str, *, quoted: bool, is_strict: bool) -> str:
        """Return a text, or the content of quotes, without the value.

        is_strict: also inside of words.
        """
        if self.value.lower() not in text.lower():
            return self._replace_start(text)
        if is_strict:
            return re.sub(re.escape(self.value), lambda _: self.shown, text, flags=re.I)
        if len(self.value) < _SHORT:
            return self.shown if quoted and text.lower() == self.value.lower() else text
        if self.is_word and not quoted:
            return text
        before = r"(?<![\w-])" if self.value[0].isalnum() else ""
        after = r"(?![\w-])" if self.value[-1].isalnum() else ""
        return re.sub(f"{before}{re.escape(self.value)}{after}", lambda _: self.shown, text, flags=re.I)

    def _replace_start(self, text: str) -> str:
        """Return a text without the beginning of a long value that was cut off."""
        start = text.find(self.value[:_SHORTENED]) if len(self.value) > _SHORTENED else -1
        if start < 0:
            return text
        end = start + _SHORTENED
        while end < len(text) and end - start < len(self.value) and text[end] == self.value[end - start]:
            end += 1
        return text[:start] + self.shown + text[end:]


@dataclass(eq=False)
class HiddenValues:
    """The values that scripts take from the environment."""

    _values: dict[str, _Hidden] = field(default_factory=dict)
    _options: dict[str, str] = field(default_factory=dict)
    _connectors: dict[str, str] = field(default_factory=dict)
    _is_full: bool = False

    @classmethod
    def of(cls, scripts: Iterable[str], environment: Mapping[str, str]) -> HiddenValues:
        """Return the values that scripts name."""
        made = cls()
        for script in scripts:
            made.add_script(script, environment)
        return made

    def add_script(self, script: str, environment: Mapping[str, str]) -> None:
        """Add the values that a script names."""
        if "${env:" not in script:
            return
        for match in _QUOTED_VALUE.finditer(script):
            raw = match.group(1).replace("''", "'")
            if "${env:" in raw:
                value = _fill(raw, environment)
                self._options[value] = raw
                if self._is_full:
                    continue
                self._add(value, raw)
                for part in _split_raw(raw):
                    self._add(_fill(part, environment), part)
        for match in _CONNECTOR.finditer(script):
            self._connectors[_fill(match.group(1), environment)] = match.group(1)
        for name in dict.fromkeys(match.group(1) for match in _VARIABLE.finditer(script)):
            value, shown = environment.get(name, ""), f"${{env:{name}}}"
            self._add(value, shown, is_secret=_SECRET_NAME.search(name) is not None)
            for part in _SEPARATORS.split(value):
                self._add(part, shown, is_part=part != value)

    def show_option(self, value: str) -> str:
        """Return an option's value as the script writes it."""
        return self._options.get(value) or self.hide(f"'{value}'")[1:-1]

    def hide_connectors(self, plan: str) -> str:
        """Return a plan with the connectors of its tables as the script writes them."""
        return _CONNECTOR_IN_PLAN.sub(lambda match: self._connectors.get(match.group(), match.group()), plan)

    def hide(self, text: str, script: str = "") -> str:
        """Return a text without the values. script: hide only those that it names, if any."""
        lowered = text.lower()
        values = [hidden for hidden in self._values.values() if hidden.is_in(text, lowered)]
        values = [hidden for hidden in values if not script or _is_named(hidden.shown, script)]
        values.sort(key=lambda hidden: -len(hidden.value))
        if not values:
            return text
        strict = self._is_full
        parts: list[str] = []
        end = 0
        for match in _QUOTED.finditer(text):
            parts.append(_replace_all(values, text[end : match.start()], quoted=False, is_strict=strict))
            content = match.group()
            parts.append(content[0] + _replace_all(values, content[1:-1], quoted=True, is_strict=strict) + content[-1])
            end = match.end()
        return "".join([*parts, _replace_all(values, text[end:], quoted=False, is_strict=strict)])

    def _add(self, value: str, shown: str, *, is_secret: bool = False, is_part: bool = False) -> None:
        if not value or value == shown or "${env:" in value or (is_part and len(value) < _SHORT):
            return
        if len(self._values) >= _MAX_VALUES and not _VARIABLE.fullmatch(shown):
            self._is_full = True
            return
        is_word = (is_part or not is_secret) and _PLAIN_WORD.fullmatch(value) is not None
        for form in {value, " ".join(value.split())}:
            known = self._values.get(form)
            if known is None or (known.is_word and not is_word):
                self._values[form] = _Hidden(form, shown, is_word)


def _replace_all(values: list[_Hidden], text: str, *, quoted: bool, is_strict: bool) -> str:
    """Return a text without values, longest first. What is shown is not replaced again."""
    for hidden in values:
        pieces = re.split(r"(\$\{env:[^}]*\})", text)
        if len(pieces) == 1:
            text = hidden.replace_in(text, quoted=quoted, is_strict=is_strict)
        else:
            text = "".join(
                piece if index % 2 else hidden.replace_in(piece, quoted=quoted, is_strict=is_strict)
                for index, piece in enumerate(pieces)
            )
    return text


def _fill(raw: str, environment: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: environment.get(match.group(1), match.group()), raw)


def _split_raw(raw: str) -> list[str]:
    """Return the parts of a value of the script that contain variables, without separators."""
    parts = [""]
    for piece in _VARIABLE_OR_SEPARATORS.split(raw):
        if _SEPARATORS.fullmatch(piece):
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if "${env:" in part]


def _is_named(shown: str, script: str) -> bool:
    return any(match.group() in script for match in _VARIABLE.finditer(shown))


# --- the values of all sessions -------------------------------------------------------------------

_active: WeakSet[HiddenValues] = WeakSet()
_lock = threading.Lock()


def activate(values: HiddenValues) -> None:
    """Hide values in all messages and logs of this process, as long as the object exists."""
    with _lock:
        _active.add(values)


def hide_active(text: str, script: str = "") -> str:
    """Return a text without the values of all sessions. script: only those that it names."""
    if not _active or (script and "${env:" not in script):
        return text
    with _lock:
        active = list(_active)
    for values in active:
        text = values.hide(text, script)
    return text
