"""Comparison of runs, specs and models: tables, charts and differences."""
