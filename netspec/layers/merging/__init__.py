"""Layers that combine several inputs."""
