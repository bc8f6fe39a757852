"""The transforms that YAML can name: one file each, found by scan."""
