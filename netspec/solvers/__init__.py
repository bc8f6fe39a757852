"""Solvers and schedules: update rules as builders of graph nodes."""
