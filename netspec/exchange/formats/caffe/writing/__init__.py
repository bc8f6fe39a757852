"""Nets → Caffe's files: prototxt for deployment and training, weights, solver."""
