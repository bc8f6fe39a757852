"""Caffe's messages: what fields they have (`tables`), and how they stand in text files and in binary ones.

`text.parse` and `wire.decode` give a `Message`, `printing.to_text` and `encoding.encode` write one; all four go by the
same tables.
"""
