"""Data: sources of samples, transforms on them, and the loader that makes batches.

Importing this package registers nothing yet: the modules of `sources/`, `transforms/`, `columns/` and `tokenizers/` are
found by scan and imported once a spec names what is theirs. Arrays are touched only once a source is opened.
"""

from __future__ import annotations

from netspec.schema.specs.data import COLUMNS, SOURCES, TOKENIZERS, TRANSFORMS

SOURCES.lives_in("netspec.data.sources")
TRANSFORMS.lives_in("netspec.data.transforms")
TOKENIZERS.lives_in("netspec.data.text.tokenizers")
COLUMNS.lives_in("netspec.data.tabular.columns")
