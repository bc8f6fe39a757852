"""Base classes and code generation that the kernels of several backends share."""
