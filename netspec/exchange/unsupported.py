"""The exceptions by which rules of all formats say that something has no counterpart in the other format."""

from __future__ import annotations


class UnsupportedFeature(Exception):
    """Something has no counterpart in the other format. The text is the reason, without the name of the layer or node.

    Whoever calls the rule catches it, and reports it together with all others in one `InputError`.
    """

    def __init__(self, reason: str, *, field: str = "", needs_constant: str = "", hint: str | None = None) -> None:
        super().__init__(reason)
        self.field = field
        """The field that cannot be converted, as a path of names in the layer; empty if there is no single one."""
        self.needs_constant = needs_constant
        """The computed tensor that would have to be a constant, if that is the reason."""
        self.hint = hint
        """Suggestion for the user."""


class MixesSamples(UnsupportedFeature):
    """A node combines samples along axis 0: it can only be imported if the whole model is one sample."""


def require(condition: object, reason: str, hint: str | None = None) -> None:
    """Raise `UnsupportedFeature` with the reason unless the condition is true."""
    if not condition:
        raise UnsupportedFeature(reason, hint=hint)
