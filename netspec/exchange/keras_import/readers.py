"""Who reads the tensors of a Keras model, and how those that read one want it to lie."""

from __future__ import annotations

from netspec.exchange.keras_import.axes import PASSES_ROWS, Order, channels_first, identity, wish_of_call
from netspec.exchange.keras_import.config import Call, Graph, KerasLayer
from netspec.exchange.keras_names import layer_type


class Readers:
    """The calls that the outputs of a model need, and what each of them reads."""

    def __init__(self, graph: Graph) -> None:
        self.calls = _reachable(graph)
        self._results = {(one.call, one.index) for one in graph.outputs}
        self._readers: dict[tuple[Call, int], list[Call]] = {}
        for call in self.calls:
            for tensor in call.tensors():
                self._readers.setdefault((tensor.call, tensor.index), []).append(call)

    def of(self, tensor: tuple[Call, int]) -> list[Call]:
        """The calls that read a tensor."""
        return self._readers.get(tensor, [])

    def needs(self, tensor: tuple[Call, int]) -> bool:
        """Whether a tensor is read, or is what the model gives."""
        return tensor in self._readers or tensor in self._results

    def order_of_input(self, call: Call, rank: int) -> Order:
        """As the layers want it that read it; images are channels-first where none says."""
        kinds = self._wishes((call, 0), set())
        if any(kind == "first" for kind, _ in kinds):
            return channels_first(rank, next(lead for kind, lead in kinds if kind == "first"))
        return identity(rank) if rank < 4 or any(kind == "plain" for kind, _ in kinds) else channels_first(rank)

    def _wishes(self, tensor: tuple[Call, int], seen: set[tuple[Call, int]]) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        waiting = [tensor]
        while waiting:
            one = waiting.pop(0)
            if one in seen:
                continue
            seen.add(one)
            for call in self.of(one):
                wish = wish_of_call(call)
                if wish.kind == "any":
                    waiting.append((call, 0))
                elif wish.kind != "none":
                    found.append((wish.kind, wish.lead))
        return found

    def wants_first(self, call: Call) -> int | None:
        """Whether what reads the call's result wants images channels-first: how many axes stand before."""
        return next((lead for kind, lead in self._wishes((call, 0), set()) if kind == "first"), None)

    def absorbs_rows(self, call: Call) -> bool:
        """Whether all that reads the call's result can take its features in another order."""
        tensor = (call, 0)
        if tensor in self._results:
            return False
        for reader in self.of(tensor):
            layer, type_ = reader.layer, layer_type(reader.layer.class_name)
            if layer.calls != 1 or layer.wrapped or len(reader.tensors()) != 1:
                return False
            if type_ != "Dense" and not (type_ in PASSES_ROWS and _of_elements(layer) and self.absorbs_rows(reader)):
                return False
        return True


def _of_elements(layer: KerasLayer) -> bool:
    """Whether a layer of single numbers is one with this configuration, too."""
    function = layer.config.get("activation")
    along = ("softmax", "log_softmax", "sparsemax", "glu")
    return function not in along and not isinstance(function, dict) and not layer.config.get("noise_shape")


def _reachable(graph: Graph) -> list[Call]:
    """The calls that the outputs need, each behind those that it reads."""
    needed: set[Call] = set()
    waiting = [one.call for one in graph.outputs]
    while waiting:
        call = waiting.pop()
        if call not in needed:
            needed.add(call)
            waiting += [one.call for one in call.tensors()]
    return [call for call in graph.calls if call in needed]
