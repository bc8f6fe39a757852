"""Export of a model to a file that takes raw samples, with a card and a script."""
