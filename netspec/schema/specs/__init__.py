"""The spec classes: net, train and data files, and the registries of their members."""
