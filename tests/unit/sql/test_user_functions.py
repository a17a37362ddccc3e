"""CREATE FUNCTION: where Python objects are found, what they must declare, and how names are
resolved.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from everfold.errors import EverfoldError, SqlError, UnsupportedFeature
from everfold.plan.expressions import PythonCall
from everfold.plan.nodes import Collect, GroupAggregate, Project
from everfold.plan.walk import walk_plan
from everfold.sql.planner import Done, Session, Show, Submit
from everfold.sql.user_functions import Kind
from everfold.udf import AggregateFunction, udf

MODULE = """
from everfold.udf import udf

@udf(result_type='{type}')
def f(value):
    return value
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a directory with a module `mine`."""
    (tmp_path / "mine.py").write_text(MODULE.format(type="INT"))
    return tmp_path


def error_of(session: Session, sql: str) -> EverfoldError:
    with pytest.raises(EverfoldError) as caught:
        list(session.run(sql, source="q.sql"))
    return caught.value


def types_of(session: Session, query: str) -> tuple[str, ...]:
    (action,) = session.run(query)
    assert isinstance(action, Submit)
    assert isinstance(action.roots[0], Collect)
    return tuple(of.type.sql for of in action.roots[0].schema)


def test_a_module_is_found_next_to_the_script(folder: Path) -> None:
    session = Session(folder=folder)
    before = list(sys.path)
    (done,) = session.run("CREATE TEMPORARY FUNCTION f AS 'mine.f' LANGUAGE PYTHON")
    assert done == Done(message="Function f created.")
    assert types_of(session, "SELECT f(1)") == ("INT",)
    assert sys.path == before


def test_modules_in_two_directories_may_have_the_same_name(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "mine.py").write_text(MODULE.format(type="STRING"))
    sessions = [Session(folder=each, import_functions=True) for each in (folder, other, folder)]
    for session in sessions:
        list(session.run("CREATE FUNCTION f AS 'mine.f' LANGUAGE PYTHON"))
    assert [types_of(session, "SELECT f(1)") for session in sessions] == [("INT",), ("STRING",), ("INT",)]


def test_a_module_in_a_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for place in ("pack", "pack/inner"):
        (tmp_path / place / "__init__.py").touch()
    (tmp_path / "pack" / "inner" / "mine.py").write_text(MODULE.format(type="DOUBLE"))
    session = Session(folder=tmp_path)
    list(session.run("CREATE FUNCTION f AS 'pack.inner.mine.f' LANGUAGE PYTHON"))
    assert types_of(session, "SELECT f(1)") == ("DOUBLE",)


@pytest.mark.parametrize(
    ("content", "identifier", "code", "words"),
    [
        ("", "f", "python-module", "'module.attribute'"),
        ("", "nowhere.f", "python-module", "no Python module is named `nowhere`"),
        ("", "wrong.f", "python-attribute", "has no `f`"),
        ("import nowhere_else\n", "wrong.f", "python-module", "ModuleNotFoundError: No module named 'nowhere_else'"),
        ("def f(:\n", "wrong.f", "python-module", "SyntaxError"),
        ("raise SystemExit(3)\n", "wrong.f", "python-module", "SystemExit: 3"),
        ("f = 7\n", "wrong.f", "not-a-function", "a value of type int"),
        ("def f(value): return value\n", "wrong.f", "undeclared-type", "result_type="),
        ("from everfold.udf import udf\nf = udf(len)\n", "wrong.f", "undeclared-type", "its result type"),
        ("from everfold.udf import udf\nf = udf(len, result_type='INTT')\n", "wrong.f", "wrong-type", "did you mean `INT`?"),
        ("from everfold.udf import udf\nf = udf(len, ['STRING', 'X'], 'INT')\n", "wrong.f", "wrong-type", "the input type"),
        ("from everfold.udf import udf\nf = udf(len, result_type='INT', func_type='rows')\n", "wrong.f", "not-a-function", "arrow"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("imports", [True, False], ids=["imported", "read"])
def test_wrong_functions_are_refused(
    tmp_path: Path, content: str, identifier: str, code: str, words: str, imports: bool
) -> None:
    (tmp_path / "wrong.py").write_text(content)
    sys.modules.pop("wrong", None)
    session = Session(folder=tmp_path, import_functions=imports)
    error = error_of(session, f"CREATE FUNCTION f\nAS '{identifier}' LANGUAGE PYTHON")
    assert (error.code, error.exit_code) == (code, 2)
    assert words in str(error)
    span = error.diagnostics[0].span
    assert span is not None
    assert (span.line, span.column) == (2, 4)


def test_a_failing_import_shows_its_location(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def inner():\n    return 1 / 0\n\nvalue = inner()\n")
    session = Session(folder=tmp_path, import_functions=True)
    error = error_of(session, "CREATE FUNCTION f AS 'fails.f' LANGUAGE PYTHON")
    assert error.diagnostics[0].notes == (
        f"{tmp_path}/fails.py:4 in <module>: value = inner()",
        f"{tmp_path}/fails.py:2 in inner: return 1 / 0",
    )


@pytest.mark.parametrize("language", ["", " LANGUAGE JAVA", " LANGUAGE SCALA"])
def test_other_languages_are_refused(language: str) -> None:
    error = error_of(Session(), f"CREATE FUNCTION f AS 'com.example.F'{language}")
    assert isinstance(error, UnsupportedFeature)
    assert error.code == "function-language"
    assert "LANGUAGE PYTHON" in str(error)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE SYSTEM FUNCTION f AS 'mine.f' LANGUAGE PYTHON",
        "CREATE FUNCTION f LANGUAGE PYTHON",
        "CREATE FUNCTION f AS mine.f LANGUAGE PYTHON",
        "CREATE FUNCTION f AS 'mine.f' LANGUAGE RUST",
        "CREATE FUNCTION f AS 'mine.f' LANGUAGE PYTHON USING JAR 'x.jar'",
        "DROP SYSTEM FUNCTION f",
    ],
)
def test_wrong_statements_are_refused(folder: Path, sql: str) -> None:
    assert error_of(Session(folder=folder), sql).code in ("syntax", "unsupported-clause")


def register_named(kind: Kind, name: str, result_type: str) -> Session:
    session = Session()
    session.register_function((name,), udf(lambda value: value, result_type=result_type), kind)
    return session


def test_names_are_resolved_by_kind() -> None:
    session = register_named(Kind.TEMPORARY, "Upper", "INT")
    assert types_of(session, "SELECT upper('a'), default_database.UPPER('a')") == ("CHAR(1)", "INT")
    session.register_function(("uPPer",), udf(lambda value: value, result_type="DATE"), Kind.SYSTEM)
    assert types_of(session, "SELECT upper('a'), default_database.UPPER('a')") == ("DATE", "INT")
    session.register_function(("g",), udf(lambda value: value, result_type="INT"), Kind.CATALOG)
    session.register_function(("g",), udf(lambda value: value, result_type="DATE"), Kind.TEMPORARY)
    assert types_of(session, "SELECT g(1)") == ("DATE",)
    assert session.forget_function(("G",), Kind.TEMPORARY)
    assert types_of(session, "SELECT g(1)") == ("INT",)
    assert not session.forget_function(("g",), Kind.TEMPORARY)


def test_a_system_function_hides_a_builtin_aggregate() -> None:
    session = register_named(Kind.SYSTEM, "MAX", "INT")
    assert types_of(session, "SELECT max(a) FROM (VALUES (1), (2)) AS v (a)") == ("INT",)
    (action,) = session.run("SELECT max(a) FROM (VALUES (1), (2)) AS v (a)")
    assert isinstance(action, Submit)
    assert not any(isinstance(node, GroupAggregate) for node in walk_plan(action.roots[0].input))


def test_a_temporary_aggregate_does_not_hide_a_builtin_one() -> None:
    session = register_named(Kind.TEMPORARY, "SUM", "DATE")
    assert types_of(session, "SELECT sum(a) FROM (VALUES (1), (2)) AS v (a)") == ("INT",)


def test_functions_are_listed() -> None:
    session = register_named(Kind.TEMPORARY, "zip_code", "INT")
    session.register_function(("Abc",), udf(lambda value: value, result_type="INT"), Kind.CATALOG)
    (shown,) = session.run("SHOW USER FUNCTIONS")
    assert shown == Show(columns=("function name",), rows=(("abc",), ("zip_code",)))
    (everything,) = session.run("SHOW FUNCTIONS")
    assert isinstance(everything, Show)
    assert {("abc",), ("upper",), ("sum",), ("zip_code",)} <= set(everything.rows)


def test_a_function_is_dropped(folder: Path) -> None:
    session = Session(folder=folder)
    list(session.run("CREATE TEMPORARY FUNCTION f AS 'mine.f' LANGUAGE PYTHON"))
    found = error_of(session, "DROP FUNCTION f")
    assert (found.code, found.diagnostics[0].help) == ("unknown-function", "DROP TEMPORARY FUNCTION f")
    list(session.run("DROP FUNCTION IF EXISTS f; DROP TEMPORARY FUNCTION F; DROP TEMPORARY FUNCTION IF EXISTS f"))
    assert error_of(session, "SELECT f(1)").code == "unknown-function"
    assert error_of(session, "CREATE FUNCTION other.f AS 'mine.f' LANGUAGE PYTHON").code == "unknown-database"


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ("1", "does not take (INT)"),
        ("1, 'a', 2", "does not take (INT, CHAR(1), INT)"),
        ("'a', 'b'", "does not take (CHAR(1), CHAR(1))"),
        ("CAST(1 AS DOUBLE), 'b'", "does not take (DOUBLE, CHAR(1))"),
    ],
)
def test_declared_arguments_are_checked(args: str, shown: str) -> None:
    session = Session()
    session.register_function(("f",), udf(lambda *args: 1, ["BIGINT", "STRING"], "INT"), Kind.TEMPORARY)
    error = error_of(session, f"SELECT f({args})")
    assert isinstance(error, SqlError)
    assert (error.code, error.diagnostics[0].help) == ("wrong-arguments", "it takes f(BIGINT, STRING)")
    assert shown in str(error)


def test_undeclared_arguments_are_checked_by_the_python_signature() -> None:
    class Collects(AggregateFunction):
        def create_accumulator(self) -> list[object]:
            return []

        def accumulate(self, accumulator: list[object], one: object, other: object = None) -> None:
            accumulator.append(one)

        def get_value(self, accumulator: list[object]) -> int:
            return len(accumulator)

        def get_result_type(self) -> str:
            return "INT"

        def get_accumulator_type(self) -> str:
            return "ARRAY<INT>"

    session = Session()
    session.register_function(("f",), udf(lambda one, *, key=1: one, result_type="INT"), Kind.TEMPORARY)
    session.register_function(("g",), Collects(), Kind.TEMPORARY)
    assert types_of(session, "SELECT f(1)") == types_of(session, "SELECT g(1), g(1, 2) FROM (VALUES (1)) AS v (a)")[:1]
    assert error_of(session, "SELECT f(1, 2)").code == "wrong-arguments"
    assert error_of(session, "SELECT g(1, 2, 3) FROM (VALUES (1)) AS v (a)").code == "wrong-arguments"


def test_python_calls_have_their_own_projections() -> None:
    session = register_named(Kind.TEMPORARY, "f", "INT")
    list(session.run("CREATE TABLE t (a INT, b INT)"))
    (action,) = session.run("SELECT f(f(a) + 1) * 2 AS x, f(a) AS y FROM t WHERE f(b) > 1 OR f(b) < 0")
    assert isinstance(action, Submit)
    plan = action.roots[0].input
    projections = [node for node in walk_plan(plan) if isinstance(node, Project)]
    alone = [each for node in projections for each in node.expressions if isinstance(each, PythonCall)]
    texts = [repr(node) for node in walk_plan(plan)]
    assert len(alone) == 3
    assert (
        texts[0].count("PythonCall(")
        == len(alone)
        == sum(not any("PythonCall" in repr(arg) for arg in each.args) for each in alone)
    )
