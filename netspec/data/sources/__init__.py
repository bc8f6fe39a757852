"""The data sources that YAML can name: one module each, found by scanning. `readers/` reads their files."""
