"""Caffe's solver files ↔ training files: rules, rates, data, and the states of solvers."""
