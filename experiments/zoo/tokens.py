"""Text and files as the integers that models read."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

__all__ = ["bytes_of_ends", "word_pieces"]

PADDING = 256


def bytes_of_ends(file: Path, n: int = 1024) -> np.ndarray:
    """Magika's features: the first and the last ``n`` bytes without white space around, padded with 256; int32."""
    content = file.read_bytes()
    first, last = content[:4096].lstrip()[:n], content[-4096:].rstrip()[-n:]
    padding = [PADDING] * (n - len(first)) + [PADDING] * (n - len(last))
    return np.array([*first, *padding, *last], np.int32)


def word_pieces(vocabulary: Mapping[str, int], text: str, length: int) -> list[int]:
    """Ids of a text in lower case between [CLS] and [SEP], cut or padded with 0 to ``length``."""
    ids = [vocabulary["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        ids += _pieces_of_word(vocabulary, word)
    ids = [*ids[: length - 1], vocabulary["[SEP]"]]
    return ids + [0] * (length - len(ids))


def _pieces_of_word(vocabulary: Mapping[str, int], word: str) -> list[int]:
    """The longest pieces from the left, or the id of [UNK] where a part has none."""
    ids, start = [], 0
    while start < len(word):
        ends = range(len(word), start, -1)
        end = next((e for e in ends if _spelling(word, start, e) in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        ids.append(vocabulary[_spelling(word, start, end)])
        start = end
    return ids


def _spelling(word: str, start: int, end: int) -> str:
    return ("##" if start else "") + word[start:end]
