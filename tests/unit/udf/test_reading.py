"""Functions that are read from the source of their modules are those that an import returns.

Each module writes a file when it runs, so that a test sees whether it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everfold.errors import SqlError
from everfold.sql.planner import Session
from everfold.sql.python_modules import load_object, read_object
from everfold.sql.user_functions import UserFunction, build_user_function
from everfold.udf.reading import FunctionReader

HEAD = """
import functools
import json
from everfold.udf import AggregateFunction, DataTypes, Row, ScalarFunction, udaf, udf
open({marker!r}, "w").close()
"""
AVERAGE = """
class Average(AggregateFunction):
    '''The average.'''
    def create_accumulator(self):
        return Row(0.0, 0)
    def accumulate(self, accumulator, value, weight=1):
        accumulator[0] += value * weight
    def get_value(self, accumulator):
        return accumulator[0]
    def get_result_type(self):
        return "DOUBLE"
    def get_accumulator_type(self):
        return DataTypes.ROW([DataTypes.FIELD("total", DataTypes.DOUBLE()), DataTypes.FIELD("n", DataTypes.BIGINT())])
"""
FUNCTIONS = {
    "decorated": "@udf(input_types=['INT', 'STRING'], result_type='STRING')\ndef f(a, b):\n    return b\n",
    "positional types": "@udf\ndef g(a): pass\nf = udf(lambda a, b=1: a, 'INT', DataTypes.DECIMAL(10, 2))\n",
    "two lines": "@udf(\n    result_type='INT',\n    func_type='polars',\n)\ndef f(a, *rest, key=None):\n    # a comment\n\n    return a\n",
    "async": "@udf(result_type='INT')\nasync def f(a): return a\n",
    "named": "def g(a):\n    return a\n\n\nf = udf(g, result_type=DataTypes.INT(nullable=False), deterministic=False, name='other')\n",
    "lambdas": "f, g = (udf(lambda a: a, result_type='INT'),\n  udf(lambda: 1, result_type='DATE'))\n",
    "a lambda over two lines": "f = udf(\n    lambda a, b: (a +\n   b), result_type='INT')\n",
    "builtin": "f = udf(len, result_type='INT')\n",
    "method of a builtin": "f = udf(str.upper, result_type='STRING')\n",
    "partial": "def g(a, b, c): pass\nf = udf(functools.partial(g, 1, c=2), result_type='INT')\n",
    "partial of a partial": "def g(a, b, c): pass\nf = udf(functools.partial(functools.partial(g, 1), object()), result_type='INT')\n",
    "cached": "@udf(result_type='INT')\n@functools.lru_cache(maxsize=None)\ndef f(a, b): return a\n",
    "wrapped": "def logged(g):\n    @functools.wraps(g)\n    def inner(*args):\n        print(args)\n        return g(*args)\n    return inner\n\n@udf(result_type='INT')\n@logged\ndef f(a, b): return a\n",
    "wrapped with arguments": "def retried(times=3):\n    def decorate(g):\n        @functools.wraps(g)\n        def inner(*args):\n            for _ in range(times):\n                return g(*args)\n        return inner\n    return decorate\n\n@udf(result_type='INT')\n@retried(times=4)\ndef f(a): return a\n",
    "factory": "def scaled(by, type_='INT'):\n    '''A factory.'''\n    def scale(value):\n        return value * by\n    return udf(scale, result_type=type_)\n\nf = scaled(3, type_='BIGINT')\n",
    "own decorator": "def int_udf(g):\n    return udf(g, result_type='INT')\n\n@int_udf\ndef f(a): return a\n",
    "partial of udf": "int_udf = functools.partial(udf, result_type='INT')\n\n@int_udf(deterministic=False)\ndef f(a): return a\n",
    "constants": "MONEY = 'DECIMAL(10, 2)'\nSIZE = 3\nTYPES = [MONEY, f'CHAR({SIZE})', 'INT' + ' NOT NULL']\nOPTIONS = {'input_types': TYPES, 'result_type': TYPES[0]}\nf = udf(lambda *a: a, **OPTIONS)\n",
    "changed constant": "T = 'INT'\n@udf(result_type=T)\ndef f(a): return a\nT = 'STRING'\n",
    "defined twice": "@udf(result_type='INT')\ndef f(a): return a\n\n@udf(result_type='DATE')\ndef f(a, b): return a\n",
    "conditions": "from typing import TYPE_CHECKING\nimport sys\nif TYPE_CHECKING:\n    f = 3\nelif sys.version_info >= (3, 8):\n    @udf(result_type='INT')\n    def f(a): return a\nif __name__ == '__main__':\n    f = 7\n",
    "guarded import": "try:\n    from everfold.udf import udf\nexcept ImportError:\n    from pyflink.table.udf import udf\nf = udf(len, result_type='INT')\n",
    "every type": "f = udf(len, [DataTypes.BOOLEAN(), DataTypes.TINYINT(), DataTypes.ARRAY(DataTypes.MAP(DataTypes.STRING(), DataTypes.TIME(3))), DataTypes.MULTISET(DataTypes.CHAR(2)), DataTypes.ROW([DataTypes.INT(), DataTypes.DATE(False)]), DataTypes.TIMESTAMP_LTZ(3), DataTypes.VARBINARY(length=-(-4))], DataTypes.BYTES())\n",
    "aliases": "import everfold.udf as u\nfrom everfold import udf as package\nfrom everfold.udf.datatypes import DataTypes as T\nf = u.udf(len, T.STRING(), package.DataTypes.INT())\n",
    "types of everfold": "from everfold import types\nf = udf(len, [types.StringType(length=3)], types.BIGINT)\n",
    "another function": "@udf(result_type='INT')\ndef g(a): return a\nf = g\n",
    "of the library": "f = udf(json.loads, result_type='STRING')\n",
    "of the library, compiled": "import math\nf = udf(math.sqrt, result_type='DOUBLE')\n",
    "ScalarFunction": "class F(ScalarFunction):\n    def eval(self, a, b=1): return a\n    def is_deterministic(self): return False\nf = udf(F(), result_type='INT')\ng = udf(F, result_type='INT')\n",
    "decorated class": "@udf(result_type='INT')\nclass f(ScalarFunction):\n    def __init__(self, scale=2):\n        self.scale = scale\n    @staticmethod\n    def eval(a): return a\n",
    "callable object": "class F:\n    def __call__(self, a): return a\nf = udf(F(), result_type='INT')\n",
    "dataclass": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass F(ScalarFunction):\n    scale: int\n    more: int = 3\n    def eval(self, a): return a * self.scale\nf = udf(F(2), result_type='INT')\n",
    "aggregate": AVERAGE + "f = Average\n",
    "aggregate object": AVERAGE + "f = Average()\n",
    "aggregate with types": AVERAGE
    + "f = udaf(Average(), input_types=['DOUBLE'], result_type='FLOAT', func_type='arrow')\n",
    "aggregate with retract": AVERAGE
    + "\nclass Mixin:\n    def retract(self, accumulator, *values): pass\n\nclass f(Mixin, Average):\n    def merge(self, accumulator, others): pass\n    def get_result_type(self): return DataTypes.FLOAT()\n",
    "types in the class": AVERAGE
    + "\nclass f(Average):\n    RESULT = 'INT'\n    def get_result_type(self): return self.RESULT\n    def get_accumulator_type(self): return self.make()\n    @classmethod\n    def make(cls): return f'ARRAY<{cls.RESULT}>'\n",
    "decorated aggregate": "@udaf(result_type='INT', accumulator_type='INT')\n" + AVERAGE.strip(),
    "columns": "@udaf(input_types=['DOUBLE'], result_type='DOUBLE', func_type='pandas')\ndef f(values, more): return values.max()\n",
    "library that registers": "REGISTRY = []\ndef register(g):\n    REGISTRY.append(g)\n    return g\nf = udf(len, result_type='INT')\nregister(f)\n",
    "state of the module": "_model = None\ndef load():\n    global _model\n    _model = 3\n@udf(result_type='INT')\ndef f(a): return _model\nload.calls = 0\n",
    # refused
    "nothing": "",
    "misspelled": "ff = udf(len, result_type='INT')\n",
    "a value": "f = 7\n",
    "a list": "f = [1]\n",
    "no type": "f = udf(len)\n",
    "bare decorator": "@udf\ndef f(a): return a\n",
    "plain function": "def f(a): return a\n",
    "plain class": "class f: pass\n",
    "ScalarFunction without type": "class f(ScalarFunction):\n    def eval(self): pass\n",
    "wrong type": "f = udf(len, result_type='INTT')\n",
    "type of another kind": "f = udf(len, result_type=7)\n",
    "wrong func_type": "f = udf(len, result_type='INT', func_type='rows')\n",
    "unknown type": "f = udf(len, result_type=DataTypes.INTEGER())\n",
    "wrong arguments of a type": "f = udf(len, result_type=DataTypes.DECIMAL())\n",
    "wrong argument": "f = udf(len, return_type='INT')\n",
    "not callable": "f = udf(3, result_type='INT')\n",
    "udaf of a function": "@udaf(result_type='INT')\ndef f(a): return a\n",
    "abstract": "class f(AggregateFunction):\n    def get_value(self, accumulator): pass\n",
    "abstract object": "class F(AggregateFunction):\n    def get_value(self, accumulator): pass\nf = F()\n",
    "constructor with arguments": AVERAGE + "\nclass f(Average):\n    def __init__(self, scale): pass\n",
    "aggregate without types": AVERAGE.replace("get_result_type", "get_other_type") + "f = Average\n",
    "missing import": "import nowhere_else\n",
    "missing submodule": "import xml.etree\nimport everfold_of_nobody.x as y\n",
    "missing name": "from helper import gone\n",
    "helper that fails": "import broken\n",
    "raised": "raise SystemExit(3)\n",
    "raised text": "raise ValueError('not \\n here')\n",
    "syntax": "def f(:\n",
    "tabs": "if 1:\n\tx = 1\n        y = 1\n",
    "null": "f = '\0'\n",
    "deleted": "f = udf(len, result_type='INT')\ndel f\n",
    "submodule": "import pack.inner\nf = pack.inner\n",
    # other modules
    "imported": "from helper import g as f\n",
    "imported module": "import helper\nf = udf(helper.h, result_type=helper.T)\n",
    "star": "from helper import *\nf = g\n",
    "package": "from pack.inner import deep as f\n",
    "package module": "import pack.inner as inner\nf = inner.deep\n",
}
UNKNOWN = {
    "environment": ("import os\nf = udf(len, result_type=os.environ.get('T', 'INT'))\n", 7),
    "command line": ("import sys\nf = udf(len, result_type=(sys.argv + ['INT'])[-1])\n", 7),
    "condition": ("import os\nif os.name == 'nt':\n    T = 'DATE'\nelse:\n    T = 'INT'\nf = udf(len, result_type=T)\n", 7),
    "loop": ("for T in ('INT', 'DATE'):\n    f = udf(len, result_type=T)\n", 6),
    "computed": ("f = udf(len, result_type='T,INT'.split(',')[1])\n", 6),
    "changed list": ("T = ['INT']\nT.append('INT')\nf = udf(len, T, 'INT')\n", 7),
    "changed by a function": ("T = 'INT'\ndef change():\n    global T\n    T = 'DATE'\nchange()\nf = udf(len, result_type=T)\n", None),
    "changed class": (AVERAGE + "Average.retract = lambda *a: None\nf = Average\n", None),
    "changed class by setattr": (AVERAGE + "setattr(Average, 'retract', lambda *a: None)\nf = Average\n", None),
    "attribute of the object": (AVERAGE + "class f(Average):\n    def __init__(self): self.t = 'INT'\n    def get_result_type(self): return self.t\n", None),
    "computed method": (AVERAGE + "class f(Average):\n    def get_result_type(self): return ['INT'].pop()\n", None),
    "conditional method": (AVERAGE + "class f(Average):\n    if open:\n        def retract(self, a, b): pass\n", None),
    "class of a library": ("from decimal import Decimal\nclass B(type('X', (), {})): pass\n@udaf(result_type='INT', accumulator_type='INT')\nclass f(B, AggregateFunction):\n    create_accumulator = accumulate = get_value = len\n", None),
    "globals": ("globals()['f'] = udf(len, result_type='INT')\n", None),
    "module attributes": ("def __getattr__(name):\n    return udf(len, result_type='INT')\n", None),
    "exec": ("exec('f = udf(len, result_type=\"INT\")')\n", None),
    "unknown function": ("f = udf([len][0:1][0], result_type='INT')\n", 6),
    "decorator": ("import os\n@udf(result_type=os.sep)\ndef f(a): return a\n", 7),
    "decorator of a library": ("@json.nothing\ndef f(a): return a\n", 6),
    "walrus": ("print(f := udf(len, result_type='INT'))\n", 6),
    "large": ("T = 'INT' + ' ' * 3\nf = udf(len, result_type=T)\n", 6),
    "doubled": ("T = DataTypes.INT()\n" + "T = DataTypes.ROW([T, T])\n" * 20 + "f = udf(len, result_type=T)\n", None),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Create a directory with modules that others import."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "pack" / "inner.py").write_text(
        "from .types import T\nfrom everfold.udf import udf\n\n@udf(result_type=T)\ndef deep(a): return a\n"
    )
    (tmp_path / "pack" / "types.py").write_text("T = 'DATE'\n")
    (tmp_path / "helper.py").write_text(
        "from everfold.udf import udf\nT = 'BIGINT'\ndef h(a): return a\ng = udf(h, 'INT', T)\n"
    )
    (tmp_path / "broken.py").write_text("import nothing_like_it\n")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def write_module(folder: Path, content: str) -> Path:
    """Write a module; return the file that it creates when it runs."""
    marker = folder / "has_run"
    (folder / "mine.py").write_text(HEAD.format(marker=str(marker)) + content)
    sys.modules.pop("mine", None)
    return marker


def describe(function: UserFunction) -> dict[str, object]:
    """Return everything that plans and verdicts depend on."""
    python = function.python
    return {
        "python": python,
        "input_types": function.input_types,
        "result_type": function.result_type,
        "is_aggregate": function.is_aggregate,
        "has_retract": python.has_retract,
        "has_merge": python.has_merge,
        "class": type(python.function).__name__,
        "digest": python.digest_source(),
        "accepts": [count for count in range(5) if function._accepts(count)],
    }


def read(folder: Path, identifier: str = "mine.f") -> UserFunction:
    found = read_object(identifier, FunctionReader(folder), None)
    return build_user_function(found, "f", identifier, None)


def load(folder: Path, identifier: str = "mine.f") -> UserFunction:
    return build_user_function(load_object(identifier, folder, None), "f", identifier, None)


def attempt(find: Callable[[Path], UserFunction], folder: Path) -> UserFunction | SqlError:
    """Return a function, or the error with which it is refused."""
    try:
        return find(folder)
    except SqlError as error:
        return error


@pytest.mark.parametrize("content", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_a_function_that_is_read_is_the_one_that_is_imported(folder: Path, content: str) -> None:
    marker = write_module(folder, content)
    found = attempt(read, folder)
    assert not marker.exists(), "reading a module runs it"
    loaded = attempt(load, folder)
    if isinstance(loaded, SqlError):
        assert isinstance(found, SqlError), found
        assert found.code == loaded.code
        shown, imported = (error.diagnostics[0].message for error in (found, loaded))
        if found.code in ("not-a-function", "python-module"):  # Python's own words differ.
            shown, imported = shown.split(":")[0], imported.split(":")[0]
        assert shown == imported
        return
    assert isinstance(found, UserFunction), found
    assert describe(found) == describe(loaded)
    assert found.is_argument_count_known
    assert found.python.is_source_known


@pytest.mark.parametrize(("content", "line"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_only_running_a_module_shows_is_reported(folder: Path, content: str, line: int | None) -> None:
    marker = write_module(folder, content)
    with pytest.raises(SqlError) as caught:
        read(folder)
    assert not marker.exists()
    assert caught.value.code == "unreadable-function", caught.value
    assert f"mine.py:{line} " in str(caught.value) or line is None
    assert "--import-functions" in str(caught.value)
    attempt(load, folder)
    assert marker.exists()


def test_a_function_with_an_unknown_decorator_is_noted(folder: Path) -> None:
    marker = write_module(folder, "import os\n@udf(result_type='INT')\n@os.nothing\ndef f(a): return a\n")
    notes: list[str] = []
    session = Session(folder=folder, notes=notes.append)
    list(session.run("CREATE FUNCTION f AS 'mine.f' LANGUAGE PYTHON; SELECT f(1, 2)"))
    assert not marker.exists()
    (note,) = notes
    assert "`mine.f`" in note
    assert "number of arguments in calls is not checked" in note
    assert not read(folder).python.is_source_known


@pytest.mark.parametrize(
    "content",
    [
        "f = udf(len, result_type=" + "-" * 3000 + "1)\n",
        "f = udf(len, result_type='I' 'NT'" + " + ''" * 90_000 + ")\n",
        "f = udf(len, result_type='INT')\n#" + "x" * 2_000_000,
        "from mine import f\n",
        "from mutual import f\n",
        "def g(): return g()\nf = g()\n",
        "def g(a): return udf(len, result_type=a)\nf = g(g(g))\n",
        "T = DataTypes.INT()\n" + "T = DataTypes.ARRAY(T)\n" * 5000 + "f = udf(len, result_type=T)\n",
        "T = []\n" + "T = [T, T]\n" * 100 + "f = udf(len, T, result_type='INT')\n",
        "T = 'x'\n" + "T = T + T\n" * 100 + "f = udf(len, result_type=T)\n",
        "T = 2\n" + "T = T + T\n" * 9000 + "f = udf(len, result_type=f'{T}')\n",
        "class f(AggregateFunction):\n    def __new__(cls): open('has_run', 'w')\n    create_accumulator = accumulate = get_value = len\n",
        "class M(type):\n    def __call__(cls): open('has_run', 'w')\nclass f(AggregateFunction, metaclass=M): pass\n",
        "class B:\n    def __init_subclass__(cls): open('has_run', 'w')\nclass f(B, AggregateFunction): pass\n",
        "class f(AggregateFunction):\n    def __getattribute__(self, name): open('has_run', 'w')\n    create_accumulator = accumulate = get_value = len\n",
    ],
    ids=range(15),
)
def test_hostile_modules_are_refused_at_once(folder: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "mutual.py").write_text("from mine import f\n")
    marker = write_module(folder, content)
    with pytest.raises(SqlError) as caught:
        list(Session(folder=folder).run("CREATE FUNCTION f AS 'mine.f' LANGUAGE PYTHON; SELECT f(1)"))
    assert caught.value.code in ("unreadable-function", "python-module", "wrong-type", "not-a-function", "too-complex")
    assert not marker.exists()


def test_a_pipe_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "mine.py")
    with pytest.raises(SqlError, match="python-module"):
        read(folder)


def test_many_modules_take_bounded_time(folder: Path) -> None:
    padding = "# " + "x" * 900_000
    for number in range(8):
        (folder / f"large{number}.py").write_text(
            f"from everfold.udf import udf\nf = udf(len, result_type='INT')\n{padding}"
        )
    reader = FunctionReader(folder)
    codes = []
    for number in range(8):
        try:
            read_object(f"large{number}.f", reader, None)
        except SqlError as error:
            codes.append(error.code)
    assert codes == ["unreadable-function"] * 5
