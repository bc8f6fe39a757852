"""Kernels that run oneDNN primitives, one module for each family of ops."""
