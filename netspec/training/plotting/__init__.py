"""Charts of losses and metrics, in the terminal and as images."""
