"""The intermediate representation: typed values, ops, the static graph, autodiff, the verifier, the kernel registry."""
