"""Schedules: the learning rate as a function of the step, computed on the host. One module per family."""
