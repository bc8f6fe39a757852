"""Data: sources of samples, transforms on them, and the loader that makes batches.

Importing this package registers nothing: the modules of `sources/`, `transforms/`, `columns/` and `tokenizers/` are
found by scanning, and imported when a spec names a type that they define. Arrays are only read after a source is
opened.
"""

from __future__ import annotations

from netspec.schema.specs.data import COLUMNS, SOURCES, TOKENIZERS, TRANSFORMS

SOURCES.lives_in("netspec.data.sources")
TRANSFORMS.lives_in("netspec.data.transforms")
TOKENIZERS.lives_in("netspec.data.text.tokenizers")
COLUMNS.lives_in("netspec.data.tabular.columns")
