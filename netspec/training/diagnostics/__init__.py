"""Diagnosis of trainings that go wrong: values that are not finite, first steps, probable mistakes."""
