"""`netspec export` of a net for sounds: the model takes samples of WAV files, and the script reads these."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from netspec.tools.inference.predict import predict
from tests.cli.conftest import Netspec
from tests.cli.exported_scripts import run_script, train_spec

TONES = """
netspec: 1
net:
  netspec: 1
  name: tones
  inputs: {audio: {shape: [CHANNELS, 16, 21]}, label: {shape: [], dtype: int32}}
  layers: [{type: Flatten, from: audio}, {type: Dense, name: scores, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: Adam, learning_rate: 0.01}
train: {max_epochs: 4}
data:
  train: &data
    source: audio
    path: sounds
    sampling_rate: 8000
    SETTINGS
    batch_size: 4
    transforms:
      - {type: Padding, length: 1600, truncating: random}
      - {type: MelSpectrogram, fft_length: 128, sequence_stride: 80, sampling_rate: 8000, num_mel_bins: 16}
      - {type: Normalization, adapt: true}
  test: *data
"""


def write_sound(path: Path, hertz: float, *, rate: int = 8000, channels: int = 1, width: int = 2) -> None:
    """Write a tone with noise, with integers of `width` bytes."""
    random = np.random.default_rng(int(hertz))
    tone = np.sin(2 * np.pi * hertz * np.arange(rate // 4) / rate)[:, None]
    samples = 0.5 * tone + random.normal(0, 0.05, (len(tone), channels))
    path.parent.mkdir(parents=True, exist_ok=True)
    integers = (samples * 2 ** (8 * width - 2)).astype("<i4")
    unsigned = (integers + 128 if width == 1 else integers).reshape(-1, 1).view(np.uint8)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(unsigned[:, :width].tobytes())


def write_floats(path: Path, samples: np.ndarray) -> None:
    """Write samples as floats in the extensible format."""
    bits = samples.dtype.itemsize * 8
    header = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 8000, 1000 * bits, bits // 8, bits, 22, bits, 0)
    header += struct.pack("<H", 3) + bytes.fromhex("0000 0000 1000 8000 00aa 0038 9b71")
    chunks = [(b"note", b"odd"), (b"fmt ", header), (b"data", samples.tobytes())]
    body = b"".join(name + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2) for name, data in chunks)
    path.write_bytes(b"RIFF" + (4 + len(body)).to_bytes(4, "little") + b"WAVE" + body)


def exported(netspec: Netspec, settings: str, channels_read: int = 1) -> str:
    """Train on tones, export to the folder `deployed`, and return what the export prints."""
    channels = 1 if "mix" in settings else 2
    for index in range(4):
        write_sound(Path(f"sounds/low/{index}.wav"), 300 + index, channels=channels)
        write_sound(Path(f"sounds/high/{index}.wav"), 2000 + index, channels=channels)
    train_spec(netspec, TONES, SETTINGS=settings, CHANNELS=str(channels_read))
    return netspec.ok("export", "run", "--output", "deployed").out


def test_the_script_answers_like_predict(netspec: Netspec, work: Path) -> None:
    printed = exported(netspec, "channels: mix\n    resample: true")
    assert "audio [N, 1, samples] → probabilities [N, 2]" in printed
    assert "in the model: Padding, MelSpectrogram, Normalization, softmax" in printed
    for width in (1, 2, 3, 4):
        write_sound(Path(f"new/{width}.wav"), 500 * width, width=width, channels=1 + width % 2)
    write_sound(Path("new/fast.wav"), 800, rate=44100)
    write_sound(Path("new/slow.wav"), 800, rate=6000)
    samples = np.sin(np.arange(1000) / 3)
    write_floats(Path("new/float.wav"), samples.astype("<f4"))
    write_floats(Path("new/double.wav"), samples.astype("<f8"))
    files = sorted(map(str, Path("new").iterdir()))
    answers = predict("run", files, device="reference").answers
    expected = [
        f"{file}: {name} {probability:.1%}"
        for file, name, probability in zip(files, answers["class"], answers["probability"], strict=True)
    ]
    assert run_script("new").out.splitlines() == expected
    Path("new/bad.wav").write_bytes(b"RIFF....WAVE")
    Path("new/text.wav").write_text("text")
    result = run_script("new/bad.wav", files[0], "new/text.wav")
    assert (result.status, result.out.splitlines()) == (1, expected[:1])
    assert result.err.splitlines() == [
        "error: new/bad.wav: the file holds no sound", "error: new/text.wav: not a WAV file",
    ]  # fmt: skip


@pytest.mark.parametrize("channels", ["left", "right", "stereo"])
def test_channels(netspec: Netspec, work: Path, channels: str) -> None:
    exported(netspec, f"channels: {channels}", 2 if channels == "stereo" else 1)
    answers = predict("run", "sounds/low/1.wav", device="reference").answers
    line = f"sounds/low/1.wav: {answers['class'][0]} {answers['probability'][0]:.1%}"
    assert run_script("sounds/low/1.wav").out == f"{line}\n"
    write_sound(Path("mono.wav"), 300)
    write_sound(Path("fast.wav"), 300, rate=16000, channels=2)
    assert run_script("mono.wav", "fast.wav").err.splitlines() == [
        "error: mono.wav: expected two channels, got 1",
        "error: fast.wav: expected 8000 samples per second, got 16000",
    ]


def test_the_program_in_the_card_runs(netspec: Netspec, work: Path) -> None:
    exported(netspec, "channels: mix")
    card = Path("deployed/README.md").read_text()
    assert "| `audio` | [N, 1, samples] | float32 | samples from -1 to 1, 8,000 per second |" in card
    assert "Average all channels of the sound. `run.py` does this." in card
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    write_sound(Path("deployed/sound.wav"), 2002)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd="deployed", capture_output=True, text=True, timeout=60, check=False
    )
    answers = predict("run", "deployed/sound.wav", device="reference").answers
    name, probability = result.stdout.split()
    assert (name, round(float(probability), 4)) == (answers["class"][0], round(answers["probability"][0], 4))


def test_an_import_returns_the_net_alone(netspec: Netspec, work: Path) -> None:
    exported(netspec, "channels: mix")
    assert onnxruntime.InferenceSession("deployed/model.onnx").get_inputs()[0].shape == ["N", 1, "samples"]
    netspec.ok("import", "deployed/model.onnx", "--output", "imported")
    assert "audio: {shape: [1, 16, 21]}" in Path("imported/net.yaml").read_text()
