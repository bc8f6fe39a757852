"""What distributed training costs, from numbers alone: bytes that strategies send, and how long networks take for them.

Nothing here knows a graph or a communicator. `netspec scale` and `netspec plan` ask it; what runs is elsewhere.
"""
