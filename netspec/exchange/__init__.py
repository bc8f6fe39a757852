"""Files other programs read and write; the only room that imports the format libraries."""
