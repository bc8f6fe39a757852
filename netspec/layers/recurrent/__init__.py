"""Recurrent layers, their cells, and wrappers around layers."""
