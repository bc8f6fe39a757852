"""Backends: each folder turns the nodes of a graph into bound kernels for one kind of hardware or library."""
