"""Graph transformations that divide a training step among workers."""
