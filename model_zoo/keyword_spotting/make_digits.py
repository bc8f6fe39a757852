"""Write spoken digits as sounds for a first keyword spotter, with the speech synthesizer espeak-ng.

    python make_digits.py FOLDER

FOLDER/train and FOLDER/test get a folder of WAV files (8 kHz, one second) for each of the words zero to nine. Accent,
speed, pitch, loudness, position and noise vary at random. The voices of the test occur in no sound of the training.
Needs the program espeak-ng (in Debian: apt install espeak-ng) and NumPy.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import wave
from pathlib import Path

import numpy as np

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ACCENTS = ("en-gb", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029")
RATE = 8000
TRAIN_VOICES = ("m1", "m2", "m3", "m4", "m5", "m6", "f1", "f2", "f3", "Alex", "Alicia", "Andrea", "Andy", "Annie",
    "Denis", "Diogo", "Gene", "Henrique", "Hugo", "Jacky", "Lee", "Marco", "Mario", "Michael", "Mike", "Nguyen", "adam", "anika",
    "antonio",
    "belinda", "benjamin", "boris", "caleb", "david", "ed", "edward", "grandma", "grandpa", "iven", "john",
    "klatt", "klatt2", "klatt3", "linda", "marcelo", "max", "michel", "miguel")  # fmt: skip
TEST_VOICES = ("m7", "m8", "f4", "f5", "norbert", "pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro",
    "shelby", "steph", "travis", "victor")  # fmt: skip


def speak(word: str, voice: str, random: np.random.Generator) -> np.ndarray:
    """A second of sound, of values from -1 to 1."""
    settings = {"-s": random.integers(120, 220), "-p": random.integers(25, 76)}  # words per minute, and pitch
    options = [str(part) for setting in settings.items() for part in setting]
    command = ["espeak-ng", "--stdout", "-v", f"{random.choice(ACCENTS)}+{voice}", *options, word]
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as file:
        rate, sound = file.getframerate(), np.frombuffer(file.readframes(2**30), "<i2") / 32768
    times = np.arange(0, len(sound) / rate, 1 / RATE)
    smooth = np.convolve(sound, np.ones(3) / 3, "same")  # weakens what 8 kHz cannot represent
    sound = np.interp(times, np.arange(len(sound)) / rate, smooth)[:RATE]
    sound *= random.uniform(0.3, 0.9) / np.abs(sound).max()
    second = random.normal(0, 10 ** random.uniform(-3.5, -1.5), RATE)
    start = random.integers(0, RATE - len(sound) + 1)
    second[start : start + len(sound)] += sound
    return np.clip(second, -1, 1)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to write")
    folder = parser.parse_args().folder
    random = np.random.default_rng(1)
    for split, voices, count in (("train", TRAIN_VOICES, 5), ("test", TEST_VOICES, 3)):
        for word in WORDS:
            (folder / split / word).mkdir(parents=True, exist_ok=True)
            for voice in voices:
                for k in range(count):
                    with wave.open(str(folder / split / word / f"{voice}_{k}.wav"), "wb") as file:
                        file.setnchannels(1)
                        file.setsampwidth(2)
                        file.setframerate(RATE)
                        file.writeframes((speak(word, voice, random) * 32767).astype("<i2").tobytes())
        print(f"{len(voices) * count * len(WORDS):,} sounds in {folder / split}")


if __name__ == "__main__":
    main()
