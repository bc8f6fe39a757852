"""Cost model of distributed training: bytes that strategies send, and their time on a network.

It uses no communicator; `netspec scale` and `netspec plan` report its estimates.
"""
