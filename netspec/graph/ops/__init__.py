"""Ops that many layers share, one family a file. Ops that serve one layer live in that layer's file."""
