"""Hide the values of environment variables that scripts name.

`everfold check` and `explain` can be offered to people who are not trusted to run scripts. Any
option can name a variable, and options are quoted in messages, but the environment of the command
may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from everfold.errors import Diagnostic, EverfoldError
from everfold.sql.script import keep_variables


@dataclass(frozen=True, slots=True)
class HiddenEnvironment:
    """The values of variables, longest first, and what is shown instead."""

    values: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, scripts: Iterable[str], environment: Mapping[str, str]) -> HiddenEnvironment:
        """Return the values of all variables that scripts name."""
        names = {name: shown for script in scripts for name, shown in keep_variables(script)[1].items()}
        values = [(environment[name], shown) for name, shown in names.items() if environment.get(name)]
        return cls(tuple(sorted(values, key=lambda pair: -len(pair[0]))))

    def hide(self, text: str) -> str:
        """Return a text without the values. They are hidden where they are words of their own."""
        for value, shown in self.values:
            before, after = (r"(?<!\w)" if value[0].isalnum() else ""), (r"(?!\w)" if value[-1].isalnum() else "")
            text = shown.join(re.split(f"{before}{re.escape(value)}{after}", text))
        return text

    def hide_in(self, error: EverfoldError) -> EverfoldError:
        """Return an error without the values."""
        return type(error)(*map(self._hide_in_diagnostic, error.diagnostics))

    def _hide_in_diagnostic(self, diagnostic: Diagnostic) -> Diagnostic:
        return replace(
            diagnostic,
            message=self.hide(diagnostic.message),
            help=None if diagnostic.help is None else self.hide(diagnostic.help),
            notes=tuple(map(self.hide, diagnostic.notes)),
        )
