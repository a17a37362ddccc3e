"""The functions for bounded regular expressions in a session of Spark.

Spark's own Java compiler, Janino, compiles them when a query first needs them. The jar is kept in
the cache, and is sent to executors.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.files import cache_folder, make_private_folder, remove_least_used, write_atomically
from everfold.sql.functions.java_regex import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("RegexFunctions.java")
_CLASS = "everfold.regex.RegexFunctions"
_FOLDER = "regex-functions"
_LOADED = "spark.everfold.regex-functions"
"""A setting of sessions that have the functions."""
_KEPT = 8
"""Number of versions to keep in the cache, those used last."""


def add_regex_functions(spark: SparkSession, text: str) -> None:
    """Register the functions in a session if a piece of SQL calls one of them."""
    if PREFIX not in text or spark.conf.get(_LOADED, ""):
        return
    jvm: Any = spark._jvm
    spark.sql(f"ADD JAR '{_jar(jvm)}'")
    # The class is not on py4j's own class path.
    loader = jvm.Thread.currentThread().getContextClassLoader()
    functions = jvm.java.lang.Class.forName(_CLASS, True, loader).newInstance()
    functions.register(spark._jsparkSession.udf())
    spark.conf.set(_LOADED, "true")


def _jar(jvm: Any) -> Path:
    """Return the jar of the functions, and compile it unless it is in the cache."""
    source = _SOURCE.read_text(encoding="utf-8")
    folder = cache_folder() / _FOLDER
    name = f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.jar"
    try:
        if (folder / name).is_file():
            os.utime(folder / name)
            return folder / name
        make_private_folder(folder)
        return _write_jar(jvm, source, folder / name)
    except OSError:
        return _write_jar(jvm, source, Path(tempfile.mkdtemp(prefix="everfold-")) / name)
    finally:
        remove_least_used(folder.glob("*.jar"), _KEPT)


def _write_jar(jvm: Any, source: str, jar: Path) -> Path:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in dict(compiler.getBytecodes()).items():
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    write_atomically(jar, content.getvalue())
    return jar
