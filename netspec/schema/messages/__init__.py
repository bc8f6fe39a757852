"""Errors in specs: pydantic's findings and names of other frameworks, with hints."""
