"""`RowOrigin`: where the rows of a table come from."""

from __future__ import annotations

from enum import Enum


class RowOrigin(Enum):
    """Origin of the rows of a table, on which the words of messages depend."""

    DATASET = "a file that the training file names"
    FILE = "a file to predict"
    TABLE = "a table in memory to predict: the body of a request, lists, or a data frame"
    OBJECTS = "JSON objects or mappings to predict"

    @property
    def is_predicted(self) -> bool:
        """Whether the rows are to be predicted, so that problems have no location in the training file."""
        return self is not RowOrigin.DATASET

    @property
    def in_memory(self) -> bool:
        """Whether the file is a temporary one, with rows that were in memory."""
        return self in (RowOrigin.TABLE, RowOrigin.OBJECTS)

    @property
    def has_keys(self) -> bool:
        """Whether messages have keys in place of columns, and JSON's values."""
        return self is RowOrigin.OBJECTS
