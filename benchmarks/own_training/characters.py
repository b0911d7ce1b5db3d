"""Make a corpus of characters for nanoGPT and minGPT.

    python benchmarks/own_training/characters.py nanoGPT/data/shakespeare_char --characters 1000000

Words that are drawn as often as words of a language are, in sentences: `input.txt`, and the
`train.bin`, `val.bin` and `meta.pkl` that nanoGPT's own `prepare.py` would make of it. The files
are the same wherever they are made.
"""

import argparse
import pickle
import random
from pathlib import Path

import numpy as np

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def corpus(characters: int) -> str:
    """Return about so many characters of text."""
    draw = random.Random(0)
    by_letter = [1 / (place + 2) for place in range(len(LETTERS))]
    words = ["".join(draw.choices(LETTERS, by_letter, k=draw.randint(1, 9))) for _ in range(2000)]
    by_word = [1 / (place + 1) for place in range(len(words))]
    lines: list[str] = []
    length = 0
    while length < characters:
        line = " ".join(draw.choices(words, by_word, k=draw.randint(4, 12))).capitalize()
        lines.append(line + draw.choice(".,;:!?"))
        length += len(lines[-1]) + 1
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--characters", type=int, default=1_000_000)
    arguments = parser.parse_args()
    text = corpus(arguments.characters)
    letters = sorted(set(text))
    numbers = {letter: number for number, letter in enumerate(letters)}
    ids = np.array([numbers[letter] for letter in text], dtype=np.uint16)
    cut = len(ids) * 9 // 10
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "input.txt").write_text(text)
    ids[:cut].tofile(arguments.folder / "train.bin")
    ids[cut:].tofile(arguments.folder / "val.bin")
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": numbers}
    (arguments.folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    print(f"{len(ids)} characters of {len(letters)} kinds in {arguments.folder}")


if __name__ == "__main__":
    main()
