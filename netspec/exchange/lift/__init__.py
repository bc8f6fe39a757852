"""Lift operator graphs to layers.

`model` is the entry point. `patterns` replaces several nodes that mean one operator; `nodes` walks the graph with one
rule per operator (`rules/`); `layer_fusion` fuses several layers into one.
"""
