"""Which known name a misspelled one means: only a name of the same meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SEPARATORS = re.compile(r"[\W_]+")
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NEGATIONS = frozenset({"no", "not", "non", "un", "without", "skip", "ignore", "disable", "disabled"})
"""Words that turn the meaning of a name around."""

_MAX_EDITS = 3
_MAX_WORD_LENGTH = 64
_FEW_LETTERS = 4


def find_similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` means, None if no single name has the same meaning.

    In order: the same letters, with other case or separators; the same words, of which some are
    misspelled; more words or letters, if only one known name begins with those of `name`, or is an
    option that ends with its words. Common letters are not enough: `min-pause` is not a
    misspelled `max-pause`.
    """
    names = [candidate for candidate in dict.fromkeys(known) if candidate != name]
    words = _words_of(name)
    if not words:
        return None
    for candidate in names:
        if "".join(_words_of(candidate)) == "".join(words):
            return candidate
    misspelled = sorted(
        ((edits, name[0].lower() != candidate[:1].lower()), candidate)
        for candidate in names
        if (edits := _count_misspellings(words, _words_of(candidate))) is not None
    )
    if misspelled:
        is_tie = len(misspelled) > 1 and misspelled[0][0] == misspelled[1][0]
        return None if is_tie else misspelled[0][1]
    longer = [candidate for candidate in names if _is_short_for(words, candidate)]
    return longer[0] if len(longer) == 1 else None


def _words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name, without case: lookup, max and retries of `lookup.maxRetries`."""
    if not name.isupper():
        name = _CASE_CHANGE.sub(" ", name)
    return tuple(word for word in _SEPARATORS.split(name.lower()) if word)


def _count_misspellings(words: Sequence[str], others: Sequence[str]) -> int | None:
    """Return by how many edits two names differ, None if a word is another one."""
    if len(words) == 1 < len(others):
        joined = "".join(others)
        is_other_letter = len(words[0]) == len(joined) and sorted(words[0]) != sorted(joined)  # TIMESTAMPNTZ
        return 1 if _count_edits(words[0], joined) == 1 and not is_other_letter else None
    if len(words) != len(others):
        return None
    total = 0
    for word, other in zip(words, others, strict=True):
        edits = _count_edits(word, other)
        if edits > _most_edits(word, other):
            return None
        total += edits
    return total if total <= _MAX_EDITS else None


def _most_edits(word: str, other: str) -> int:
    """Return by how many edits two spellings of one word can differ.

    Words that begin differently can be opposites, as encode and decode, or formats, as csv and tsv.
    """
    longest = max(len(word), len(other))
    if word.isdigit() or other.isdigit():
        return 0
    if word[0] != other[0]:
        return 1 if longest > _FEW_LETTERS else 0
    return min(longest // 3, _MAX_EDITS)


def _count_edits(word: str, other: str) -> int:
    """Return how many letters to insert, drop, replace or swap make one word of another.

    Words of very different or great lengths are just different.
    """
    if word == other:
        return 0
    if abs(len(word) - len(other)) > _MAX_EDITS or len(word) > _MAX_WORD_LENGTH:
        return _MAX_EDITS + 1
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        above, before, row = row, above, [i]
        for j, other_letter in enumerate(other, 1):
            edits = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
    return row[-1]


def _is_short_for(words: Sequence[str], candidate: str) -> bool:
    """Return whether a name lacks words at the end of a known one, or at the start of an option.

    The only word can also be shortened, as BOOL is.
    """
    others = _words_of(candidate)
    count = len(words)
    if count == 1 == len(others):
        return others[0].startswith(words[0]) and len(words[0]) >= max(_FEW_LETTERS - 1, len(others[0]) / 2)
    if count >= len(others):
        return False
    if tuple(others[:count]) == tuple(words):
        rest = others[count:]
    elif tuple(others[-count:]) == tuple(words) and ("." in candidate or "-" in candidate):
        rest = others[:-count]
    else:
        return False
    return _NEGATIONS.isdisjoint(rest)
