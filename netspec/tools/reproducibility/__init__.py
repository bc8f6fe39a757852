"""Checks that trainings are reproduced exactly: after a resume, on several workers, from a capsule."""
