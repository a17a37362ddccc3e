"""The statements of a case: the query that is compared, and scripts whose tables are stand-ins.

A script runs as it is, but its tables are fed from the rows of the case. What their connectors
declare about the rows counts: whether they change, and whether they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from everfold.plan.changelog import ChangelogMode, RowKind
from everfold.plan.nodes import Collect, Root, Table
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Action, Session, Submit
from everfold.sql.script import parse_script, sets_dialect
from everfold.sql.statements import CreateTable, CreateView, ResetOption, SetOption, Statement
from everfold.testing.casefile import Case, Step

_RUNTIME_MODE = "execution.runtime-mode"
_KINDS = {
    ChangelogMode.INSERT_ONLY: {RowKind.INSERT.short},
    ChangelogMode.UPSERT: {RowKind.INSERT.short, RowKind.UPDATE_AFTER.short, RowKind.DELETE.short},
}
"""The kinds of the rows that a table emits."""


def choose_result(case: Case, step: Step, actions: Iterable[Action]) -> Collect:
    """Return the query whose rows are compared: the only one, or the INSERT into `result`.

    Raises UsageError `bad-case-file`.
    """
    roots = [root for action in actions if isinstance(action, Submit) for root in action.roots]
    if step.result is not None:
        roots = [root for root in roots if _name_of(root) == step.result]
    if len(roots) == 1:
        return (
            Collect(input=roots[0].input) if step.result is not None or not isinstance(roots[0], Collect) else roots[0]
        )
    if step.result is not None:
        message = f"`result` is `{step.result}`, but {len(roots) or 'no'} statements insert into it"
        raise case.file.error(step.line, message)
    key = "sql" if step.script is None else "script"
    names = sorted({name for name in map(_name_of, roots) if name is not None})
    help_ = f"name the table whose rows are expected: result: {names[0]}" if names else None
    raise case.file.error(step.sql.line, f"`{key}` must have exactly one query, but has {len(roots)}", help_)


def _name_of(root: Root) -> str | None:
    return None if isinstance(root, Collect) else root.table.name


@dataclass(slots=True)
class ScriptRun:
    """Runs the script of a step.

    fixed: options that the script does not change. created: the tables and views of the case, which
    take the place of those in the script. stand_ins: the tables of the script, quoted.
    """

    case: Case
    step: Step
    session: Session
    fixed: Mapping[str, str]
    created: dict[str, CreateTable | CreateView]
    stand_ins: set[str] = field(default_factory=set)

    def run(self) -> Iterator[Action]:
        """Yield the actions of the script."""
        assert self.step.script is not None
        replaced = frozenset(self.created)
        self.session.folder = self.step.script.parent
        text, source = self.step.sql.text, str(self.step.script)
        for statement in parse_script(text, source, self.session.settings.dialect):
            match statement:
                case SetOption(key=str(key)) if key in self.fixed and not sets_dialect(statement):
                    self._check_mode(statement)
                case ResetOption():
                    yield self.session.execute(statement)
                    for key, value in self.fixed.items():
                        self.session.catalog.set_option(key, value)
                case CreateTable() | CreateView() if self._quote(statement) in replaced:
                    continue
                case _:
                    yield self.session.execute(statement)
                    self._record(statement)

    def _record(self, statement: Statement) -> None:
        """Record a table or view that the script has created."""
        if isinstance(statement, CreateTable | CreateView):
            self.created[self._quote(statement)] = statement
        if isinstance(statement, CreateTable):
            self.stand_ins.add(self._quote(statement))
            entry = self.session.catalog.find(statement.name)
            assert isinstance(entry, CatalogTable), "just created"
            self._check_kinds(entry.table)
            mark_changing(self.case, self.session)

    @staticmethod
    def _quote(statement: CreateTable | CreateView) -> str:
        return ".".join(f"`{part}`" for part in statement.name)

    def _check_mode(self, statement: SetOption) -> None:
        """Raise UsageError `bad-case-file` if the script sets another mode than the case has."""
        mode = self.fixed[_RUNTIME_MODE]
        if statement.key == _RUNTIME_MODE and statement.value != mode:
            message = f"the script sets '{_RUNTIME_MODE}' = '{statement.value}', but the case runs in mode {mode}"
            modes = "batch" if mode == "streaming" else "stream"
            raise self.case.file.error(self.step.sql.line, message, f"set modes: [{modes}]")

    def _check_kinds(self, table: Table) -> None:
        """Raise UsageError `bad-case-file` for rows that the connector of a table never emits."""
        rows = self.step.rows.get(table.name)
        possible = _KINDS.get(table.changelog)
        if table.connector is None or rows is None or possible is None:
            return
        wrong = next((kind for kind in rows.table.kinds or () if kind not in possible), None)
        if wrong is not None:
            message = f"table `{table.name}` (connector `{table.connector}`) emits no `{wrong}` rows"
            raise self.case.file.error(rows.line, message)


def mark_changing(case: Case, session: Session) -> None:
    """Set the changelog mode of the tables that the case feeds with changes.

    They are upserts if the table has a PRIMARY KEY and no -U is among them. A connector declares
    what its tables emit.
    """
    kinds: dict[str, set[str]] = {}
    for name, fed in (item for step in case.steps for item in step.rows.items()):
        kinds.setdefault(name, set()).update(fed.table.kinds or ())
    for name, row_kinds in kinds.items():
        entry = session.catalog.find((name,))
        if row_kinds and isinstance(entry, CatalogTable) and entry.table.connector is None:
            keyed = entry.table.primary_key and RowKind.UPDATE_BEFORE.short not in row_kinds
            mode = ChangelogMode.UPSERT if keyed else ChangelogMode.ALL
            session.catalog.replace(replace(entry, table=replace(entry.table, changelog=mode)))
