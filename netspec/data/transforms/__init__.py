"""The transforms that YAML can name: one module each, found by scanning."""
