"""Starting workers and the line between each worker and the command that started it."""
