"""A parameter server: server ranks hold pieces of the parameters; workers push gradients and fetch parameters.

One server coordinates: workers send it requests; by the `rules` of a mode it decides whose gradients update the
parameters and which workers may continue, and sends commands to the other servers. All servers apply the same updates
in the same order, so a worker always fetches a consistent state of the net.
"""
