"""Cost model of distributed training: bytes that strategies send, and the time that networks take for them.

It uses no communicator; `netspec scale` and `netspec plan` report its estimates.
"""
