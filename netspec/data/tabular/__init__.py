"""Tables with declared columns: reading, statistics, vocabularies."""
