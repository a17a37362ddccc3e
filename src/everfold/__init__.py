"""everfold: streaming SQL aggregation on Spark that survives query changes.

`from everfold import TableEnvironment` is the Python API. It is loaded on first access, so that
commands that need no Spark start at once. Without the extra `spark`, it is UsageError
`engine-missing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from everfold.table.environment import TableEnvironment

__all__ = ["TableEnvironment", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "TableEnvironment":
        from everfold.spark.pyspark_path import require_pyspark

        require_pyspark()
        from everfold.table.environment import TableEnvironment

        return TableEnvironment
    raise AttributeError(f"module `everfold` has no attribute `{name}`")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%everfold` in a notebook. Called by `%load_ext everfold`."""
    from everfold.notebook.magics import register

    register(shell)
