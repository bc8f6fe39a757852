"""Nets → Caffe's files: prototxt and weights."""
