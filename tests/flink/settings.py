"""The questions of `make test-flink`: the first `COUNT` questions of `SEED`, for the engine
`memory` or `spark`.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("FLINK_SEED") or 1)
COUNT = int(os.environ.get("FLINK_COUNT") or 500)
ENGINE = os.environ.get("FLINK_ENGINE") or "memory"
