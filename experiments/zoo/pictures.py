"""Pictures for the readers of characters: signs on photos, coloured characters, captchas."""

import numpy as np
from PIL import Image, ImageDraw

from experiments.zoo.sources import Sources

__all__ = ["captcha", "coloured_characters", "signs_on_photo"]

CAPTCHA_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNPQRSTUVWXYZ"
Generator = np.random.Generator


def signs_on_photo(sources: Sources, rng: Generator, split: str, i: int) -> Image.Image:
    """A photo of 416 x 416 with printed lines pasted here and there."""
    picture = Image.fromarray(sources.photos.crops(split, 8, (416, 416), 100 + i)[i % 8])
    for _ in range(rng.integers(2, 6)):
        line = sources.writing.line(rng, split, (260, int(rng.integers(18, 44))))
        x = int(rng.integers(0, 416 - min(line.width, 400)))
        picture.paste(line, (x, int(rng.integers(0, 370))))
    return picture


def coloured_characters(sources: Sources, rng: Generator, photo: np.ndarray) -> np.ndarray:
    """Big turned characters on a photo of 344 x 200, enlarged and padded to 416 x 416."""
    picture = Image.fromarray(photo)
    for _ in range(rng.integers(3, 7)):
        glyph = Image.new("L", (64, 64))
        latin, greek, cyrillic = rng.integers(65, 91), rng.integers(0x3B1, 0x3C9), rng.integers(0x410, 0x430)
        character = chr(int(rng.choice([latin, greek, cyrillic])))
        font = sources.writing.font(rng, int(rng.integers(36, 54)))
        ImageDraw.Draw(glyph).text((10, 0), character, font=font, fill=255)
        glyph = glyph.rotate(rng.uniform(-35, 35))
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        picture.paste(colour, (int(rng.integers(0, 280)), int(rng.integers(0, 140))), glyph)
    height = int(200 * 416 / 344)
    padded = np.full((416, 416, 3), 114, np.uint8)
    padded[:height] = np.asarray(picture.resize((416, height), Image.Resampling.BILINEAR))
    return padded


def captcha(sources: Sources, rng: Generator, split: str) -> Image.Image:
    """A short code under a few lines, 192 x 64, grey."""
    length = rng.integers(4, 6)
    code = "".join(CAPTCHA_ALPHABET[k] for k in rng.integers(len(CAPTCHA_ALPHABET), size=length))
    picture = sources.writing.paper(rng, (192, 64), split)
    draw = ImageDraw.Draw(picture)
    for i, character in enumerate(code):
        place = (12 + 34 * i, int(rng.integers(4, 18)))
        font = sources.writing.font(rng, int(rng.integers(32, 40)))
        draw.text(place, character, font=font, fill=tuple(int(v) for v in rng.integers(0, 120, 3)))
    for _ in range(rng.integers(0, 4)):
        ends = [tuple(int(v) for v in rng.integers(0, [192, 64])) for _ in range(2)]
        draw.line(ends, fill=tuple(int(v) for v in rng.integers(0, 200, 3)))
    return picture.convert("L")
