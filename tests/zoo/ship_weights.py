"""Store the best weights of a run in the zoo, as float16 if that changes no result: `python -m tests.zoo.ship_weights`.

    python -m tests.zoo.ship_weights NAME RUN [KEY=VALUE …]

Compares the results of float32 and float16 weights on the test data, writes `model_zoo/NAME/weights.h5`, and writes its
checksum to `card.yaml`. KEY=VALUE changes the training file, for instance the folder of the data.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.tools.inference.predict import test
from netspec.tools.model_inputs import spec_and_weights
from netspec.tools.zoo import CARD, WEIGHTS, zoo_model

LARGEST_CHANGE = 5e-4
"""Largest accepted change of a loss or metric by float16; relative for values above 1."""


def main(name: str, run: str, *overrides: str) -> None:
    """Compare, then write the weights and their checksum."""
    model = zoo_model(name)
    _, source = spec_and_weights(run, None)
    found = read_weights(source)
    narrow = {key: array.astype(np.float16) for key, array in found.arrays.items()}
    with TemporaryDirectory() as folder:
        candidate = Path(folder, WEIGHTS)
        write_weights(candidate, narrow, net=found.net, name=found.name, **found.meta)
        exact, rounded = (test(model.folder, weights=file, overrides=overrides) for file in (source, candidate))
    values = [{"loss": result.loss or 0.0, **result.metrics} for result in (exact, rounded)]
    change = max(abs(value - values[1][key]) / max(1.0, abs(value)) for key, value in values[0].items())
    print(f"float32 {values[0]}\nfloat16 {values[1]}\nlargest change {change:.2g}")
    kept = narrow if change <= LARGEST_CHANGE else found.arrays
    target = model.folder / WEIGHTS
    write_weights(target, kept, net=found.net, name=found.name, **found.meta)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    card = model.folder / CARD
    text = re.sub(r"^weights_sha256: .*\n", "", card.read_text(encoding="utf-8"), flags=re.MULTILINE)
    card.write_text(f"{text.rstrip()}\nweights_sha256: {digest}\n", encoding="utf-8")
    print(f"wrote {target}: {'float16' if kept is narrow else 'float32'}, {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
