"""Which options are secret, and how to redact their values.

Everything that is shown of a script, in an error, on a terminal or in a log, is redacted here.

A script is redacted as plain text, not as a syntax tree, because it is also shown when it does not
parse: keys and values may lack quotes, have the wrong ones, or be in a comment. So the scan looks
for names of secrets and hides everything that follows them; in doubt it hides too much.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from everfold.hidden_values import hide_active

HIDDEN = "******"
_NAMES = (
    # Flink's list (FLINK-24381, FLINK-30443, FLINK-39590)
    "password", "secret", "fs.azure.account.key", "api.key", "auth.params", "service.key", "token",
    "basic.auth", "jaas.config", "http.headers",
    # PEM keys, OAuth and cloud credentials, and synonyms of password
    "keystore.key", "private.key", "ssl.key.pem", "account.key", "access.key", "credential",
    "user.info", "passphrase", "passwd", "pwd",
)  # fmt: skip
"""Substrings of secret option names. A dot stands for any separator, or none."""
_NAME = re.compile("|".join(name.replace(".", "[._-]?") for name in _NAMES), re.I)
NAME_PATTERN = f"(?i){_NAME.pattern}"
"""Names of options that Spark redacts. A Java regular expression, as is TEXT_PATTERN."""
TEXT_PATTERN = "|".join((
    rf"""(?i)(?:{_NAME.pattern})[\w.$-]*['"`]?\s*(?:=>|:=|=|:)\s*(?:'[^']*'?|"[^"]*"?|`[^`]*`?|[^\s,;&)\]}}]+)""",
    r"""(?<=://)[^\s/'"`<>@]*(?=@)""",
    r"""[?&](?i:sig|[\w-]{0,40}signature)=[^&\s'"`<>;,)]*""",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]{0,40}PRIVATE KEY-----|[\s\S]*)",
))  # fmt: skip
"""What Spark hides in its plans: values after names of secrets, user info in URLs, private keys."""
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
"""Characters around a name or a URL that are scanned, to bound the time for a long script."""
CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""URL schemes with a container, not a user, before the `@`."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<text>.*?)(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S
)
_SIGNATURE = re.compile(r"[?&;'\"`](?:sig|[\w-]{0,40}signature)=(?P<text>[^&\s'\"`<>;,)]*)", re.I)
"""The signature of a signed URL, such as Azure's `?sig=`."""
_STARRED = re.compile(r"[^'\n]")
_NEAR = 100
"""How many secrets before and after a message's location the message might quote."""
_WORDS = re.compile(r"[^\s'\"`,;()=]+")
_PLAIN_WORD = re.compile(r"[A-Za-z]+[0-9]{0,2}")
_SHORT = 4
"""A word of a secret with fewer characters is hidden in a message only where it is quoted.
Otherwise it may be a word of the message itself."""


def is_secret(key: str) -> bool:
    """Return whether the value of an option must be hidden, judged by its name as in Flink."""
    return _NAME.search(key) is not None


def redact_value(key: str, value: str) -> str:
    """Return the value of an option with its secrets hidden.

    The whole value is hidden if the option is secret. Otherwise secrets within it are (in URLs,
    private keys).
    """
    if is_secret(key):
        return HIDDEN
    for start, end in reversed(_secret_parts(value, bare=True)):
        value = value[:start] + HIDDEN + value[end:]
    return value


def redact_script(text: str) -> str:
    """Return a script with each character of a secret value replaced by a star.

    Everything else keeps its position.
    """
    return _mask(text, _secrets_of_script(text))


def redact_log(text: str) -> str:
    """Return a log line or a foreign error message with stars for values after names of secrets."""
    return hide_active(_mask(text, _secret_parts(text, bare=True)))


def redact_part(script: str, start: int, end: int) -> str:
    """Return a part of a script, redacted as by `redact_script`."""
    parts = _secrets_of_script(script)
    shown = [
        (max(each[0], start) - start, min(each[1], end) - start) for each in parts if each[0] < end and each[1] > start
    ]
    return _mask(script[start:end], shown)


def redact_message(message: str, script: str, at: int = 0) -> str:
    """Return a message without the script's secrets, and without values of the environment.

    The message may quote the script around the position `at`. Words that the script's line shows
    there are kept: they are the ones that the message is about.
    """
    message = hide_active(message, script)
    parts = _secrets_of_script(script)
    here = bisect_left(parts, (at, at))
    near = parts[max(0, here - _NEAR) : here + _NEAR]
    shown: frozenset[str] = frozenset()
    if near:
        end = script.find("\n", at)
        line = redact_part(script, script.rfind("\n", 0, at) + 1, len(script) if end < 0 else end)
        shown = frozenset(_WORDS.findall(line))
    for start, end in near:
        message = _remove_secret(message, script[start:end], shown)
    return _mask(message, _secret_parts(message, bare=False))


def redact_command_line(arguments: Sequence[str]) -> str:
    """Return a command line without secrets.

    Hidden are secrets in SQL, the values of all variables, and the values of secret options.
    """
    redacted: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        pair = argument.removeprefix("--conf=").removeprefix("--var=")
        option = argument.removesuffix(pair)
        name, equals, value = pair.partition("=")
        if before == "--var" or option == "--var=":
            redacted.append(f"{option or name + equals}{HIDDEN}")
        elif before == "--conf" or option == "--conf=":
            redacted.append(f"{option}{name}{equals}{redact_value(name, value)}")
        else:
            redacted.append(redact_script(argument))
    return " ".join(redacted)


# --- the scan -------------------------------------------------------------------------------------

_Part = tuple[int, int]


def _mask(text: str, parts: Iterable[_Part]) -> str:
    shown, at = [], 0
    for start, end in parts:
        shown += [text[at:start], _STARRED.sub("*", text[start:end])]
        at = end
    return "".join([*shown, text[at:]])


@lru_cache(maxsize=4)
def _secrets_of_script(script: str) -> tuple[_Part, ...]:
    return tuple(_secret_parts(script, bare=False))


def _secret_parts(text: str, *, bare: bool) -> list[_Part]:
    """Return the start and end of each secret in a text, in order.

    bare: an unquoted name counts anywhere, not only where options are expected.
    """
    found = [match.span("text") for match in _PRIVATE_KEY.finditer(text)]
    found += (match.span("text") for match in _SIGNATURE.finditer(text) if match.group("text"))
    found += _user_infos(text)
    at = 0
    while (name := _NAME.search(text, at)) is not None:
        part = _Name.around(text, name.start(), name.end()).value(bare=bare)
        at = max(name.end(), part[1])
        if part[0] < part[1]:
            found.append(part)
    return _merge_parts(found)


def _user_infos(text: str) -> Iterator[_Part]:
    """Yield the user info of URLs: the part before `@`."""
    at = text.find("://")
    while at >= 0:
        start, end = at + 3, at + 3
        if "@" in text[start : start + _FAR] and (found := _USER_INFO.match(text, start, start + _FAR)) is not None:
            scheme = _SCHEME.search(text[max(0, at - 30) : at])
            if scheme is None or scheme.group().lower() not in CONTAINER_SCHEMES or ":" in found.group():
                end = found.end() - 1
                yield start, end
        at = text.find("://", end)


def _merge_parts(parts: list[_Part]) -> list[_Part]:
    merged: list[_Part] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class _Name:
    """A name of a secret in a text, from `start` to `end`."""

    text: str
    start: int
    end: int

    @classmethod
    def around(cls, text: str, start: int, end: int) -> _Name:
        """Return the whole name that contains the given part."""
        first, last = max(0, start - _LONGEST_NAME), min(len(text), end + _LONGEST_NAME)
        while start > first and text[start - 1] in _WORD:
            start -= 1
        while end < last and text[end] in _WORD:
            end += 1
        return cls(text, start, end)

    def value(self, *, bare: bool) -> _Part:
        """Return the range of the value, an empty one if no value follows."""
        text, end, nothing = self.text, self.end, (self.end, self.end)
        if text[self.start - 1 : self.start] in ("?", "&") and text[end : end + 1] == "=":
            return self._parameter(end + 1)
        closed = end < len(text) and text[end] in "'\"`"
        at = self._skip(end + closed)
        assign = _ASSIGN.match(text, at)
        if assign is not None:
            at = self._skip(assign.end())
        elif closed and at < len(text) and not (text[at].isalnum() or text[at] in "_'\"`"):
            at = self._skip(at + 1)  # another character in place of `=`
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
        """Return the position after spaces and comments."""
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
        """Return the end of one or more quoted strings and of anything attached to the last."""
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
        """Return whether options are expected here.

        That is after an opening parenthesis, a comma or a semicolon, after SET, or in a comment.
        """
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


# --- messages -------------------------------------------------------------------------------------


def _remove_secret(message: str, secret: str, shown: frozenset[str]) -> str:
    """Return a message without a secret, whether verbatim, unquoted, shortened, or word by word.

    shown: words that the script shows at the location of the message.
    """
    plain = secret.strip().strip("'\"`")
    if not plain or plain in shown:
        return message
    message = message.replace(secret, f"'{HIDDEN}'" if secret[:1] in "'\"`" else HIDDEN)
    if len(plain) >= _SHORT:
        message = _remove_word(_remove_word(message, plain.replace("''", "'")), plain)
    if len(secret) > 30:
        message = message.replace(secret[:30], "'" + HIDDEN)
    for word in sorted(set(_WORDS.findall(plain)) - shown, key=len, reverse=True):
        message = message.replace(f"`{word}`", f"`{HIDDEN}`").replace(f"number {word}", f"number {HIDDEN}")
        if len(word) >= _SHORT and any(each.isdigit() for each in word):
            message = _remove_word(message, word)
    return message


def _remove_word(message: str, word: str) -> str:
    """Return a message without a word. A plain word is kept where it is a part of another one."""
    if _PLAIN_WORD.fullmatch(word) is None:
        return message.replace(word, HIDDEN)
    return re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", HIDDEN, message)
