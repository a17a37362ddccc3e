"""The reader of case files: tables, rows, SQL and expectations in three layers (suite, case, step).

`docs/case-files.md` describes the format. Everything is checked while it is read, and an error
shows the line of the file. What a case inherits from its suite is resolved here, and the scripts
that it names are read: a `Case` is self-contained.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml

from everfold.errors import Span, UsageError, suggest_name
from everfold.testing.part import OnChange
from everfold.testing.pipetable import PipeTable, PipeTableError, parse

SUFFIX = ".case.yaml"
MAX_CASE_NODES = 200_000
"""Maximum number of values in a case file; those of an alias count at each use."""
_TAGS = frozenset(
    f"tag:yaml.org,2002:{each}"
    for each in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
)
Mode = Literal["stream", "batch"]
MODES: tuple[Mode, ...] = ("stream", "batch")

SUITE_KEYS = ("script", "tables", "rows", "options", "batches", "modes", "tolerance", "cases")
_OUTCOMES = ("expect", "changelog", "error", "not_yet")
STEP_KEYS = ("sql", "script", "result", "tables", "rows", "options", "batches", *_OUTCOMES)
CASE_KEYS = ("name", "modes", "tolerance", "steps", *STEP_KEYS)
ON_CHANGE = "on_change"
_MAX_MARKED = 60
"""Maximum number of characters of a line that an error marks: rows can be long."""
_CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


@dataclass(frozen=True, slots=True)
class Block:
    """A string of the file: SQL or a pipe table.

    line: the file's line, from 1, of its first line. comment: the comment after `|`.
    """

    text: str
    line: int
    comment: str = ""

    @property
    def padded_text(self) -> str:
        """The text after as many empty lines as precede it in the file.

        So positions in it are positions in the file.
        """
        return "\n" * (self.line - 1) + self.text


@dataclass(frozen=True, slots=True)
class FedTable:
    """Rows for a table, and the line of the file where its pipe table starts."""

    table: PipeTable
    line: int


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The error that a case expects: its code, and words that its message contains."""

    code: str | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of a query: it reads rows, its result is compared, and the next step gets its state.

    sql: the statements. script: the path of their file, None if they are in the case file.
    result: the table whose rows are compared, if there are several INSERTs.
    batches: "one", "row" or the number of rows of each batch (a last batch takes the remaining
    rows).
    expect, error: at most one is set; neither is in a step that only feeds rows.
    written: `expect` as written in the file.
    not_yet: by mode, the code of the error that an unsupported feature raises until it is
    supported.
    on_change: what to do with the state if the query differs from that of the previous step.
    """

    line: int
    sql: Block
    script: Path | None = None
    result: str | None = None
    tables: tuple[Block, ...] = ()
    rows: dict[str, FedTable] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    batches: str | tuple[int, ...] = "one"
    expect: PipeTable | None = None
    written: Block | None = field(default=None, repr=False, compare=False)
    types: tuple[str, ...] | None = None
    changelog: bool = False
    error: ExpectedError | None = None
    not_yet: dict[Mode, str] = field(default_factory=dict)
    on_change: OnChange = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test case: one step, or several with a restart between them."""

    file: CaseFile = field(repr=False, compare=False)
    name: str
    line: int
    steps: tuple[Step, ...]
    modes: tuple[Mode, ...] = ("stream",)
    tolerance: float = 0.0

    @property
    def id(self) -> str:
        """The file's path and the case's name."""
        return f"{self.file.path}: {self.name}"


@dataclass(slots=True)
class CaseFile:
    """A case file that has been read."""

    path: Path
    text: str = field(repr=False)
    cases: tuple[Case, ...] = ()

    def span(self, line: int) -> Span:
        """Return the span of a line, counted from 1, for an error message."""
        lines = self.text.split("\n")
        start = sum(len(each) + 1 for each in lines[: line - 1])
        content = lines[line - 1] if line <= len(lines) else ""
        indent = len(content) - len(content.lstrip())
        return Span(
            start + indent,
            start + min(max(len(content.rstrip()), indent + 1), indent + _MAX_MARKED),
            str(self.path),
            self.text,
        )

    def error(self, line: int, message: str, help: str | None = None) -> UsageError:
        """Create an error at a line of this file."""
        return UsageError.of("bad-case-file", message, self.span(line), help)


def find_case_files(paths: Sequence[Path]) -> list[Path]:
    """Return the given case files and those in the given folders, in order.

    Raises UsageError `no-case-files` or `no-such-file`.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files = sorted(path.rglob(f"*{SUFFIX}"))
            if not files:
                raise UsageError.of("no-case-files", f"no file in `{path}` is named `*{SUFFIX}`")
            found |= dict.fromkeys(files)
        elif path.exists():
            found[path] = None
        else:
            raise UsageError.of("no-such-file", f"`{path}` does not exist")
    return list(found)


def load(path: Path) -> CaseFile:
    """Read a case file; raises UsageError if it cannot be read or is not valid."""
    try:
        return loads(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError.of("unreadable-file", f"`{path}` cannot be read: {error}") from error


def loads(text: str, path: Path = Path("<case file>")) -> CaseFile:
    """Read a case file from a string; raises UsageError if it is not valid."""
    read = CaseFile(path, text)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise read.error(line, f"this is not valid YAML: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise read.error(1, f"this is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise read.error(1, "this is nested too deeply") from None
    _check_nodes(root, read)
    if not isinstance(root, yaml.MappingNode):
        raise read.error(1, "a case file must be a mapping with a list `cases`")
    read.cases = tuple(_Reader(read).suite(root))
    return read


def _check_nodes(root: yaml.Node | None, read: CaseFile) -> None:
    """Refuse tags that create objects, cyclic nodes, and aliases that expand too far."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node | None) -> int:
        if node is None:
            return 0
        line = node.start_mark.line + 1
        if id(node) not in sizes:
            if node.tag not in _TAGS:
                raise read.error(line, f"the tag `{node.tag}` is not allowed in a case file")
            sizes[id(node)] = 0
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            below = (each for part in parts for each in (part if isinstance(part, tuple) else (part,)))
            sizes[id(node)] = 1 + sum(map(size, below))
        elif not sizes[id(node)]:
            raise read.error(line, "this contains itself")
        if sizes[id(node)] > MAX_CASE_NODES:
            raise read.error(line, f"this has more than {MAX_CASE_NODES:,} values once its aliases are expanded")
        return sizes[id(node)]

    size(root)


@dataclass(slots=True)
class _Reader:
    """Builds cases from YAML nodes, which have line numbers."""

    file: CaseFile

    def suite(self, root: yaml.MappingNode) -> Iterator[Case]:
        suite = self.mapping(root, SUITE_KEYS)
        if "cases" not in suite:
            raise self.error(root, "a case file needs a list `cases`")
        names: dict[str, int] = {}
        for node in self.sequence(suite["cases"], "cases"):
            case = self.case(suite, node)
            if case.name in names:
                raise self.error(
                    node, f"two cases are named `{case.name}`: the other one is on line {names[case.name]}"
                )
            names[case.name] = case.line
            yield case

    def case(self, suite: dict[str, yaml.Node], node: yaml.Node) -> Case:
        own = self.mapping(node, CASE_KEYS)
        if "name" not in own:
            raise self.error(node, "a case needs a `name`")
        layers = [suite, own]
        if "steps" in own:
            if outcome := next((key for key in _OUTCOMES if key in own), None):
                raise self.error(own[outcome], f"a case with `steps` cannot have `{outcome}`: write it in its steps")
            steps = []
            for at, step in enumerate(self.sequence(own["steps"], "steps")):
                steps.append(self.step(layers, self.mapping(step, (*STEP_KEYS, ON_CHANGE)), step, first=at == 0))
        else:
            steps = [self.step([suite], own, node, first=True)]
        if all(step.expect is None and step.error is None and not step.not_yet for step in steps):
            raise self.error(node, f"a case needs one of {', '.join(f'`{key}`' for key in _OUTCOMES)}")
        return Case(
            file=self.file,
            name=self.text(own["name"]).text,
            line=node.start_mark.line + 1,
            steps=tuple(steps),
            # Only a stream can be restarted.
            modes=self.modes(self.innermost(layers, "modes")) if len(steps) == 1 else ("stream",),
            tolerance=self.tolerance(self.innermost(layers, "tolerance")),
        )

    def step(
        self, above: list[dict[str, yaml.Node]], own: dict[str, yaml.Node], node: yaml.Node, *, first: bool
    ) -> Step:
        layers = [*above, own]
        sql, script = self.statements(layers, node)
        outcomes = [key for key in _OUTCOMES if key in own]
        # `not_yet` may come with what is expected once the feature is supported.
        if len([key for key in outcomes if key != "not_yet"]) > 1:
            raise self.error(
                own[outcomes[1]], f"only one of {', '.join(f'`{key}`' for key in outcomes)} can be expected"
            )
        rows: dict[str, FedTable] = {}
        options: dict[str, str] = {}
        for layer in layers:
            # Rows of the suite and of the case belong to the first step: a later one continues from
            # there.
            if "rows" in layer and (first or layer is own):
                rows |= {name: self.fed_table(each, name) for name, each in self.mapping(layer["rows"]).items()}
            if "options" in layer:
                options |= {name: self.option(each) for name, each in self.mapping(layer["options"]).items()}
        outcome_fields: dict[str, Any] = {}
        for key in ("expect", "changelog"):
            if key in own:
                block = self.text(own[key])
                table = self.table(block)
                outcome_fields = {"expect": table, "written": block, "types": _types(block.comment)}
                outcome_fields["changelog"] = key == "changelog" or table.kinds is not None
        if "error" in own:
            outcome_fields["error"] = self.expected_error(own["error"])
        if "not_yet" in own:
            outcome_fields["not_yet"] = self.gaps(own["not_yet"])
        if ON_CHANGE in own:
            if first:
                raise self.error(
                    own[ON_CHANGE], f"`{ON_CHANGE}` is not allowed in the first step, which has no state yet"
                )
            outcome_fields[ON_CHANGE] = self.on_change(own[ON_CHANGE])
        return Step(
            line=node.start_mark.line + 1,
            sql=sql,
            script=script,
            result=None if (result := self.innermost(layers, "result")) is None else self.text(result).text,
            tables=tuple(self.text(layer["tables"]) for layer in layers if "tables" in layer),
            rows=rows,
            options=options,
            batches=self.batches(self.innermost(layers, "batches")),
            **outcome_fields,
        )

    def statements(self, layers: Sequence[dict[str, yaml.Node]], node: yaml.Node) -> tuple[Block, Path | None]:
        """Return the statements of the innermost `sql` or `script`, and the path of the script."""
        layer = next((layer for layer in reversed(layers) if "sql" in layer or "script" in layer), None)
        if layer is None:
            raise self.error(node, "`sql` is missing", "or name a script: script: queries.sql")
        if "script" not in layer:
            return self.text(layer["sql"]), None
        if "sql" in layer:
            raise self.error(layer["script"], "a case has either `sql` or `script`")
        name = self.text(layer["script"])
        path = Path(os.path.normpath(self.file.path.parent / name.text))
        try:
            return Block(path.read_text(encoding="utf-8"), name.line), path
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise self.error(layer["script"], f"the script `{path}` cannot be read: {reason}") from error

    # --- one key each -----------------------------------------------------------------------------

    def fed_table(self, node: yaml.Node, name: str) -> FedTable:
        block = self.text(node)
        return FedTable(self.table(block), block.line)

    def table(self, block: Block) -> PipeTable:
        try:
            return parse(block.text)
        except PipeTableError as error:
            raise self.file.error(block.line + error.line, str(error)) from error

    def option(self, node: yaml.Node) -> str:
        value = self.value(node)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def batches(self, node: yaml.Node | None) -> str | tuple[int, ...]:
        if node is None:
            return "one"
        value = self.value(node)
        if value in ("one", "row"):
            return str(value)
        if isinstance(value, list) and value and all(type(each) is int and each >= 0 for each in value):
            return tuple(value)
        raise self.error(node, "`batches` must be `one`, `row` or a list of row counts")

    def on_change(self, node: yaml.Node) -> OnChange:
        value = self.text(node).text
        if value not in get_args(OnChange):
            raise self.error(node, "`on_change` must be `refuse`, `accept` or `backfill`")
        return cast("OnChange", value)

    def modes(self, node: yaml.Node | None) -> tuple[Mode, ...]:
        if node is None:
            return ("stream",)
        value = self.value(node)
        if not isinstance(value, list) or not value or any(each not in MODES for each in value):
            raise self.error(node, "`modes` must be a list of `stream` and `batch`")
        return tuple(mode for mode in MODES if mode in value)

    def tolerance(self, node: yaml.Node | None) -> float:
        if node is None:
            return 0.0
        try:
            # Parse the string: YAML reads 1e-9, which has no decimal point, as a string.
            value = float(self.text(node).text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise self.error(node, "`tolerance` must be a number, such as 1e-9")
        return value

    def expected_error(self, node: yaml.Node) -> ExpectedError:
        if isinstance(node, yaml.MappingNode):
            own = self.mapping(node, ("code", "words"))
            code = self.text(own["code"]).text if "code" in own else None
            words = own.get("words")
            if isinstance(words, yaml.SequenceNode):
                return ExpectedError(code, tuple(self.text(each).text for each in words.value))
            return ExpectedError(code, () if words is None else (self.text(words).text,))
        text = self.text(node).text
        return ExpectedError(code=text) if _CODE.fullmatch(text) else ExpectedError(words=(text,))

    def gaps(self, node: yaml.Node) -> dict[Mode, str]:
        if not isinstance(node, yaml.MappingNode):
            return dict.fromkeys(MODES, self.text(node).text)
        own = self.mapping(node, MODES)
        return {mode: self.text(own[mode]).text for mode in MODES if mode in own}

    # --- YAML -------------------------------------------------------------------------------------

    def innermost(self, layers: Sequence[dict[str, yaml.Node]], key: str) -> yaml.Node | None:
        """Return the value of a key in the innermost layer that has it."""
        return next((layer[key] for layer in reversed(layers) if key in layer), None)

    def mapping(self, node: yaml.Node, keys: Sequence[str] | None = None) -> dict[str, yaml.Node]:
        """Return the entries of a mapping; with `keys`, no others are allowed."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, "expected a mapping")
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(self.value(key))
            if keys is not None and name not in keys:
                raise self.error(
                    key, f"unknown key `{name}`", suggest_name(name, keys) or f"use one of {', '.join(keys)}"
                )
            if name in entries:
                raise self.error(key, f"duplicate key `{name}`")
            entries[name] = value
        return entries

    def sequence(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.error(node, f"`{name}` must be a list")
        return list(node.value)

    def value(self, node: yaml.Node) -> Any:
        return yaml.SafeLoader("").construct_object(node, deep=True)

    def text(self, node: yaml.Node) -> Block:
        """Return a string with its line and the comment after `|`."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, "expected a string")
        line = node.start_mark.line + 1
        if node.style not in ("|", ">"):
            return Block(str(node.value), line)
        head = self.file.text.split("\n")[node.start_mark.line][node.start_mark.column :]
        return Block(str(node.value), line + 1, head.partition("#")[2].strip())

    def error(self, node: yaml.Node, message: str, help: str | None = None) -> UsageError:
        return self.file.error(node.start_mark.line + 1, message, help)


def _types(comment: str) -> tuple[str, ...] | None:
    """Return the types in `TIMESTAMP(3), DECIMAL(38, 2); a note`."""
    types: list[str] = []
    depth, start = 0, 0
    text = comment.partition(";")[0]
    for at, character in enumerate(text + ","):
        depth += (character in "(<") - (character in ")>")
        if character == "," and depth == 0:
            types.append(text[start:at].strip())
            start = at + 1
    return tuple(types) if any(types) else None
