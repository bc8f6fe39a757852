"""Graph-to-graph passes, one per module, and the planners of execution order and memory.

Dead code elimination needs no pass: a graph consists of the nodes that its results depend on.
"""
