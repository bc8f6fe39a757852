"""Caffe: its messages as text and as bytes, its nets, weights and solvers."""
