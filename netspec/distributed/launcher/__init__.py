"""Starting workers, and the control socket between each worker and the command that started it."""
