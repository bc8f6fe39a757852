"""The column types that YAML can declare for a table: one module each, found by scanning."""
