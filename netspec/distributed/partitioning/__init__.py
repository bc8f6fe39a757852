"""How one training step is divided over workers: the graph transformations."""
