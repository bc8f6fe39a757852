"""Files other programs read and write; the only package that imports the format libraries."""
