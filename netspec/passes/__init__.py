"""Graph → graph, one pass a file, and the two plans made of the finished graph: order of execution and memory.

Code that no result depends on needs no pass: a graph consists of what its results are computed from.
"""
