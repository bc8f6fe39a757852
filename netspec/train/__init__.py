"""The training loop, evaluation, checkpoints and logs.

`netspec.train` is this package and, for users, the function that trains: importing any module of the package puts the
package in the function's place, so the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, spec: Any, /, **overrides: Any) -> Any:
        from netspec.train.api import train

        return train(spec, **overrides)


sys.modules[__name__].__class__ = _CallablePackage
