"""Kernels by oneDNN, Intel's library of compiled primitives, called through `ctypes`: no compiler, no extension module.

`library` finds the shared library, `engine` is a processor it runs on, `memory` describes and holds arrays, `primitive`
binds a computation to them, and the other files say how each family of primitives is made.
"""
