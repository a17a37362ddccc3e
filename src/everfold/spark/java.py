"""Finding the Java that Spark needs; the error without one reports what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from everfold.errors import UsageError

REQUIRED = 17
_HELP = f"install a Java {REQUIRED} runtime (Debian: openjdk-{REQUIRED}-jre-headless) or point JAVA_HOME at one"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: its program, and the output of `java -version`."""

    program: Path
    version_output: str

    @property
    def version(self) -> int | None:
        """The feature release (17, 21, …), None if it is unknown."""
        found = re.search(r'version "(\d+)(?:\.(\d+))?', self.version_output)
        if not found:
            return None
        return int(found.group(2)) if found.group(1) == "1" and found.group(2) else int(found.group(1))


def java_program() -> Path | None:
    """Return the `java` that Spark's launcher would use: that of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return candidate if candidate.is_file() else None
    found = shutil.which("java")
    return Path(found) if found else None


def require_java() -> Java:
    """Return the Java to use.

    Raises UsageError `no-java` if there is none or it is too old.
    """
    program = java_program()
    if program is None:
        raise UsageError.of("no-java", f"Spark needs Java {REQUIRED} or newer, and none was found", help=_HELP)
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    java = Java(program, done.stderr + done.stdout)
    if java.version is None or java.version < REQUIRED:
        found = java.version or "one that does not start"
        raise UsageError.of("no-java", f"Spark needs Java {REQUIRED} or newer, found {found}", help=_HELP)
    return java
