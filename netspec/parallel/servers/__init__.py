"""A parameter server: ranks that hold pieces of the parameters, and workers who push gradients to them and fetch them.

One server coordinates: the workers ask it, it decides by the `rules` of a mode whose gradients move the parameters and
who may go on, and tells the other servers. All servers do the same things in the same order, so whatever a worker
fetches is one state of the whole net.
"""
