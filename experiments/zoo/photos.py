"""Photos that ship with Python packages, and random crops of them."""

from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.zoo.packages import PackageStore

__all__ = ["MATPLOTLIB", "SCIKIT_IMAGE", "SCIKIT_LEARN", "Photos", "seeded"]

SCIKIT_IMAGE = "pip:scikit-image==0.26.0"
SCIKIT_LEARN = "pip:scikit-learn==1.9.1"
MATPLOTLIB = "pip:matplotlib==3.11.2"
FACE_RECOGNITION = "sdist:face_recognition==1.3.0"

MATERIAL = {  # more than photos: `FileBytes` wants files of many kinds
    SCIKIT_IMAGE: [r"skimage/data/[\w.]+\.(png|jpg|npy|tif|gif|npz)$"],
    SCIKIT_LEARN: [r"/(china\.jpg)$", r"/(flower\.jpg)$", r"sklearn/datasets/data/.*\.csv(\.gz)?$"],
    MATPLOTLIB: [
        r"/(grace_hopper\.jpg)$",
        r"/ttf/DejaVu[\w-]+\.ttf$",
        r"mpl-data/(images|sample_data)/",
        r"matplotlib/[\w]+\.(py|pyi|so)$",
        r"afm/.*\.afm$",
    ],
    FACE_RECOGNITION: [r"tests/test_images/\w+\.jpg$"],
}
OF_SPLIT = {
    "calib": [
        *("astronaut.png", "coffee.png", "rocket.jpg", "china.jpg", "obama.jpg", "biden.jpg"),
        *("hubble_deep_field.jpg", "obama_partial_face.jpg"),
    ],
    "eval": [
        *("chelsea.png", "flower.jpg", "grace_hopper.jpg", "obama2.jpg", "obama3.jpg", "motorcycle_left.png"),
        *("ihc.png", "obama_partial_face2.jpg"),
    ],
}
WITH_FACES = {
    *("astronaut.png", "obama.jpg", "biden.jpg", "obama_partial_face.jpg"),
    *("grace_hopper.jpg", "obama2.jpg", "obama3.jpg", "obama_partial_face2.jpg"),
}


def seeded(seed: int, split: str) -> np.random.Generator:
    """A generator of its own for each split."""
    return np.random.default_rng([seed, split == "eval"])


class Photos:
    """Eight photos a split, none in both."""

    def __init__(self, store: PackageStore) -> None:
        self._store = store
        self._opened: dict[str, list[tuple[str, Image.Image]]] = {}

    @cached_property
    def files(self) -> dict[str, Path]:
        """The packages' files by name, photos and others."""
        found = (file for package, patterns in MATERIAL.items() for file in self._store.members(package, patterns))
        return {file.name: file for file in found}

    def of(self, split: str) -> list[tuple[str, Image.Image]]:
        """Names and RGB pictures of a split."""
        if split not in self._opened:
            self._opened[split] = [(name, Image.open(self.files[name]).convert("RGB")) for name in OF_SPLIT[split]]
        return self._opened[split]

    def crops(
        self, split: str, n: int, size: tuple[int, int], seed: int, *, smallest: float = 0.5, faces: int = 0
    ) -> np.ndarray:
        """Random resized crops, half of them mirrored, with a light change of exposure.

        Args:
            split: ``calib`` or ``eval``.
            n: How many crops.
            size: Width and height.
            seed: Of this set of crops.
            smallest: Smallest share of the photo's side that a crop may take.
            faces: How many more times photos with faces are drawn.

        Returns:
            RGB bytes, shape ``(n, height, width, 3)``.
        """
        rng = seeded(seed, split)
        photos = self.of(split)
        photos = [photo for photo in photos if photo[0] in WITH_FACES] * faces + photos
        return np.stack([_crop(photos[i % len(photos)][1], size, rng, smallest) for i in range(n)])


def _crop(photo: Image.Image, size: tuple[int, int], rng: np.random.Generator, smallest: float) -> np.ndarray:
    width, height = photo.size
    aspect = size[0] / size[1]
    crop_width, crop_height = (width, width / aspect) if width / aspect <= height else (height * aspect, height)
    share = rng.uniform(smallest, 1)
    crop_width, crop_height = crop_width * share, crop_height * share
    x, y = rng.uniform(0, width - crop_width), rng.uniform(0, height - crop_height)
    crop = photo.resize(size, Image.Resampling.BILINEAR, box=(x, y, x + crop_width, y + crop_height))
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(crop, np.float32) * rng.uniform(0.8, 1.15) + rng.uniform(-12, 12)
    return np.asarray(np.clip(pixels, 0, 255), np.uint8)
