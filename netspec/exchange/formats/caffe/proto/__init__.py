"""Caffe's messages: their fields (`tables`), and reading and writing them as text and in binary form.

`text.parse` and `binary.decode` read a `Message`, `text.to_text` and `binary.encode` write one; all four use the same
tables.
"""
