"""Nets with weights on new samples: `Model`, files of samples, and answers."""
