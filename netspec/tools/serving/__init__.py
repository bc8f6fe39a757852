"""An HTTP service for a trained net: the Open Inference Protocol, and answers for images, rows and texts.

`service` answers requests without knowing HTTP, `batching` computes several requests at once, `open_inference` reads
and writes the protocol's messages, `application` connects them to HTTP, and `server` runs that until a signal.
"""
