"""Import onnxruntime without its telemetry."""

from __future__ import annotations

import os
from typing import Any


def load_onnxruntime() -> Any:
    """Return the module `onnxruntime`; its telemetry is off unless the user has set ORT_DISABLE_TELEMETRY."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read on import, which writes files and queues events
    import onnxruntime

    return onnxruntime
