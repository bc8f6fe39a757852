"""Losses: one file per family. Modules are found by scan, as those of `layers` are."""
