"""Monitoring of workers: their activity, failure detection and failure reports."""
