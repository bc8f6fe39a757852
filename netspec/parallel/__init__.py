"""Communicators and the strategies that spread one training over several workers."""
