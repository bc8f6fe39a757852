"""Checks of specs before a training: fields, shapes, data, gradients, and probable mistakes."""
