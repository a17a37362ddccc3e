"""Finding the Java that Spark needs, and saying in one line what to install when there is none."""

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
    """A Java: its program, and what that answers to `-version`."""

    program: Path
    said: str

    @property
    def version(self) -> int | None:
        """The feature release (17, 21, …), None when it does not say."""
        found = re.search(r'version "(\d+)(?:\.(\d+))?', self.said)
        if not found:
            return None
        return int(found.group(2)) if found.group(1) == "1" and found.group(2) else int(found.group(1))


def java_program() -> Path | None:
    """The `java` that Spark's launcher would take: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return candidate if candidate.is_file() else None
    found = shutil.which("java")
    return Path(found) if found else None


def require_java() -> Java:
    """The Java to use.

    Raises UsageError `no-java` when there is none, or one that is too old.
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
