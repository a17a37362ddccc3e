"""Which options are secret, and texts without their values: what is shown of a script, in an error, on a terminal or in a log, goes through here.

A script is redacted as text, not as a tree, because it is shown when it does not parse: keys and values may lack quotes, have wrong ones, or stand in
a comment. So the scan looks for names of secrets and hides whatever follows them, rather too much than too little.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

HIDDEN = "******"
_NAMES = (
    # Flink's list (FLINK-24381, FLINK-30443, FLINK-39590)
    "password", "secret", "fs.azure.account.key", "api.key", "auth.params", "service.key", "token", "basic.auth", "jaas.config", "http.headers",
    # PEM keys, credentials of OAuth and of clouds, and words for passwords
    "keystore.key", "private.key", "ssl.key.pem", "account.key", "access.key", "credential", "user.info", "passphrase", "passwd", "pwd",
)  # fmt: skip
"""Parts of names; a dot is any separator, or none."""
_NAME = re.compile("|".join(name.replace(".", "[._-]?") for name in _NAMES), re.I)
NAME_PATTERN = f"(?i){_NAME.pattern}"
"""What Spark is to look for in names of options: a regular expression of Java's, as the next one is."""
TEXT_PATTERN = "|".join((
    rf"""(?i)(?:{_NAME.pattern})[\w.$-]*['"`]?\s*(?:=>|:=|=|:)\s*(?:'[^']*'?|"[^"]*"?|`[^`]*`?|[^\s,;&)\]}}]+)""",
    r"""(?<=://)[^\s/'"`<>@]*(?=@)""",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]{0,40}PRIVATE KEY-----|[\s\S]*)",
))  # fmt: skip
"""What Spark is to hide in its plans: names of secrets with what follows, who logs in at a URL, private keys."""
_LONGEST_NAME = 200
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-$")
_SPACE = re.compile(r"[ \t\r\n]*")
_ASSIGN = re.compile(r"=>|:=|==|=|:(?!:)")
_QUOTED = re.compile(
    r"""(?:[A-Za-z]&?|[uU]&)?(?P<text>'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|`(?:[^`]|``)*(?:`|\Z))"""
)
_BARE = re.compile(
    r"""[^\n]*?(?=\s{0,9},\s{0,99}['"`]?[\w.-]{1,200}['"`]?\s{0,9}=|\s{0,9}\)\s{0,9}(?:;|\n|\Z)|\s{0,9}\*/|;\s|;\Z|\n|\Z)"""
)
_OPERAND = re.compile(r"[^\s,;)]+")
_PARAMETER = re.compile(r"[^&;\s'\"`)]*")
_MORE = re.compile(r"\s*(?:\|\|\s*|\+\s*)?(?=['\"`])")
_NO_VALUE = re.compile(
    r"(?:AS|FROM|THEN|ELSE|END|AND|OR|IS|IN|NOT|LIKE|BETWEEN|ORDER|GROUP|WHERE|HAVING|UNION|WHEN|ON)\b", re.I
)
_USER_INFO = re.compile(r"[^\s'\"`<>]*@")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*\Z")
_FAR = 1000
"""How many characters around a name or a URL are looked at, so that the scan of a long script takes no long time."""
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose URLs have a container, and not a user, before the `@`."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<text>.*?)(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S
)
_STARRED = re.compile(r"[^'\n]")
_NEAR = 100
"""How many secrets before and after the place that a message speaks of it could quote."""
_SHORT = 4
"""Below so many characters a word of a secret is hidden in a message only where it is quoted: it may be a word of the message's own."""


def is_secret(key: str) -> bool:
    """Whether the value of an option must not be shown: its name says so, as in Flink."""
    return _NAME.search(key) is not None


def shown_value(key: str, value: str) -> str:
    """The value of an option as it may be shown: hidden if its name is a secret's, else without the secrets in it (of URLs, private keys)."""
    if is_secret(key):
        return HIDDEN
    for start, end in reversed(_secret_parts(value, bare=True)):
        value = value[:start] + HIDDEN + value[end:]
    return value


def without_secrets(text: str) -> str:
    """A script with stars for the values of secret options, one for each character: all else stays where it was."""
    return _starred(text, _secrets_of_script(text))


def without_secrets_in_log(text: str) -> str:
    """A line of a log, or the words of somebody else's error, with stars for what follows a name of a secret."""
    return _starred(text, _secret_parts(text, bare=True))


def shown_part(script: str, start: int, end: int) -> str:
    """A part of a script, as `without_secrets` shows it."""
    parts = _secrets_of_script(script)
    shown = [
        (max(each[0], start) - start, min(each[1], end) - start) for each in parts if each[0] < end and each[1] > start
    ]
    return _starred(script[start:end], shown)


def without_quoted_secrets(message: str, script: str, at: int = 0) -> str:
    """A message, which may quote the script around a place in it, without the script's secrets."""
    parts = _secrets_of_script(script)
    here = bisect_left(parts, (at, at))
    for start, end in parts[max(0, here - _NEAR) : here + _NEAR]:
        message = _without(message, script[start:end])
    return _starred(message, _secret_parts(message, bare=False))


def command_line(arguments: Sequence[str]) -> str:
    """A command as it was typed, without secrets: those in SQL, all values of variables, and those of secret options."""
    told: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        pair = argument.removeprefix("--conf=").removeprefix("--var=")
        option = argument.removesuffix(pair)
        name, equals, value = pair.partition("=")
        if before == "--var" or option == "--var=":
            told.append(f"{option or name + equals}{HIDDEN}")
        elif before == "--conf" or option == "--conf=":
            told.append(f"{option}{name}{equals}{shown_value(name, value)}")
        else:
            told.append(without_secrets(argument))
    return " ".join(told)


# --- the scan ---------------------------------------------------------------------------------------------------------

_Part = tuple[int, int]


def _starred(text: str, parts: Iterable[_Part]) -> str:
    shown, at = [], 0
    for start, end in parts:
        shown += [text[at:start], _STARRED.sub("*", text[start:end])]
        at = end
    return "".join([*shown, text[at:]])


@lru_cache(maxsize=4)
def _secrets_of_script(script: str) -> tuple[_Part, ...]:
    return tuple(_secret_parts(script, bare=False))


def _secret_parts(text: str, *, bare: bool) -> list[_Part]:
    """From where to where secrets stand in a text, in order. bare: a name without quotes counts wherever it stands, not only where options do."""
    found = [match.span("text") for match in _PRIVATE_KEY.finditer(text)]
    found += _user_infos(text)
    at = 0
    while (name := _NAME.search(text, at)) is not None:
        part = _Name.around(text, name.start(), name.end()).value(bare=bare)
        at = max(name.end(), part[1])
        if part[0] < part[1]:
            found.append(part)
    return _merged(found)


def _user_infos(text: str) -> Iterator[_Part]:
    """The parts of URLs before `@`: who logs in."""
    at = text.find("://")
    while at >= 0:
        start, end = at + 3, at + 3
        if "@" in text[start : start + _FAR] and (found := _USER_INFO.match(text, start, start + _FAR)) is not None:
            scheme = _SCHEME.search(text[max(0, at - 30) : at])
            if scheme is None or scheme.group().lower() not in _CONTAINERS or ":" in found.group():
                end = found.end() - 1
                yield start, end
        at = text.find("://", end)


def _merged(parts: list[_Part]) -> list[_Part]:
    merged: list[_Part] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class _Name:
    """A name of a secret, from `start` to `end` in a text."""

    text: str
    start: int
    end: int

    @classmethod
    def around(cls, text: str, start: int, end: int) -> _Name:
        """The whole name that a part of one belongs to."""
        first, last = max(0, start - _LONGEST_NAME), min(len(text), end + _LONGEST_NAME)
        while start > first and text[start - 1] in _WORD:
            start -= 1
        while end < last and text[end] in _WORD:
            end += 1
        return cls(text, start, end)

    def value(self, *, bare: bool) -> _Part:
        """Where the value stands; nothing if none follows."""
        text, end, nothing = self.text, self.end, (self.end, self.end)
        if text[self.start - 1 : self.start] in ("?", "&") and text[end : end + 1] == "=":
            return self._parameter(end + 1)
        closed = end < len(text) and text[end] in "'\"`"
        at = self._skip(end + closed)
        assign = _ASSIGN.match(text, at)
        if assign is not None:
            at = self._skip(assign.end())
        elif closed and at < len(text) and not (text[at].isalnum() or text[at] in "_'\"`"):
            at = self._skip(at + 1)  # some other sign where `=` should be
            if _QUOTED.match(text, at) is None:
                return nothing
        if _QUOTED.match(text, at) is not None:
            return (at, self._quoted(at)) if assign is not None or closed or self._is_option(bare) else nothing
        if at >= len(text) or (assign is None and (not closed or _NO_VALUE.match(text, at))):
            return nothing
        if closed or self._is_option(bare):
            return (at, self._bare(at))
        operand = _OPERAND.match(text, at)
        return nothing if operand is None or assign is None or assign.group() == ":" else operand.span()

    def _skip(self, at: int) -> int:
        """Where spaces and comments end."""
        while True:
            space = _SPACE.match(self.text, at)
            assert space is not None
            at = space.end()
            end = self.text.find("*/", at, at + _FAR) if self.text.startswith("/*", at) else -1
            if end < 0:
                return at
            at = end + 2

    def _parameter(self, at: int) -> _Part:
        found = _PARAMETER.match(self.text, at)
        assert found is not None
        return found.span()

    def _quoted(self, at: int) -> int:
        """The end of one or more texts in quotes, and of what is stuck to the last of them."""
        while (quoted := _QUOTED.match(self.text, at)) is not None:
            at = quoted.end()
            more = _MORE.match(self.text, at)
            if more is None:
                break
            at = more.end()
        if at < len(self.text) and (self.text[at] in _WORD or self.text[at] == "\\"):
            return self._bare(at)
        return at

    def _bare(self, at: int) -> int:
        found = _BARE.match(self.text, at)
        return at if found is None else found.end()

    def _is_option(self, bare: bool) -> bool:
        """Whether options stand here: in parentheses or behind a comma, in SET, or in a comment."""
        if bare:
            return True
        near = self.text[max(0, self.start - _FAR) : self.start]
        before = near.rstrip(" \t\r\n'\"`")
        if not before or before[-1] in "(,;" or re.search(r"\bSET\Z", before[-4:], re.I):
            return True
        line = near[near.rfind("\n") + 1 :]
        if "--" in line or ("//" in line and re.search(r"(?<!:)//", line)):
            return True
        return near.rfind("/*") > near.rfind("*/")


# --- messages ---------------------------------------------------------------------------------------------------------


def _without(message: str, secret: str) -> str:
    """A message without a secret, as it was written, without its quotes, shortened, or word by word."""
    plain = secret.strip().strip("'\"`")
    message = message.replace(secret, f"'{HIDDEN}'" if secret[:1] in "'\"`" else HIDDEN)
    if not plain:
        return message
    if len(plain) >= _SHORT:
        message = message.replace(plain.replace("''", "'"), HIDDEN).replace(plain, HIDDEN)
    if len(secret) > 30:
        message = message.replace(secret[:30], "'" + HIDDEN)
    for word in sorted(set(re.findall(r"[^\s'\"`,;()=]+", plain)), key=len, reverse=True):
        message = message.replace(f"`{word}`", f"`{HIDDEN}`").replace(f"number {word}", f"number {HIDDEN}")
        if len(word) >= _SHORT and any(each.isdigit() for each in word):
            message = message.replace(word, HIDDEN)
    return message
