"""The types of columns that YAML can declare for a table: one file each, found by scan."""
