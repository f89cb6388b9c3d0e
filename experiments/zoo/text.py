"""English sentences from Python's own documentation, printed as lines, pages and tables."""

import re
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from experiments.zoo.packages import PackageStore
from experiments.zoo.photos import MATPLOTLIB, Photos

__all__ = ["Font", "Writing"]

Font = ImageFont.FreeTypeFont
Generator = np.random.Generator


class Writing:
    """Sentences, the first half for calibration and the second for evaluation, and pictures of them."""

    def __init__(self, store: PackageStore, photos: Photos) -> None:
        self._store = store
        self._photos = photos

    @cached_property
    def _all_sentences(self) -> list[str]:
        from pydoc_data.topics import topics

        text = " ".join(re.sub(r"[*\"`|^~=\\]+", "", topics[key]) for key in sorted(topics))
        parts = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"(?<=[a-z][.:])\s+", text)]
        return [s for s in parts if 25 < len(s) < 240 and sum(c.isalpha() or c == " " for c in s) > 0.85 * len(s)]

    def sentences(self, split: str) -> list[str]:
        """The sentences of a split."""
        half = len(self._all_sentences) // 2
        return self._all_sentences[:half] if split == "calib" else self._all_sentences[half:]

    @cached_property
    def _font_files(self) -> list[Path]:
        return self._store.members(MATPLOTLIB, [r"/ttf/DejaVu(Sans|Serif)(Mono)?(-\w+)?\.ttf$"])

    def font(self, rng: Generator, pixels: float) -> Font:
        """A random face of DejaVu."""
        return ImageFont.truetype(self._font_files[rng.integers(len(self._font_files))], int(pixels))

    def paper(self, rng: Generator, size: tuple[int, int], split: str) -> Image.Image:
        """A background: plain, tinted, noisy, or a washed-out photo."""
        if rng.random() < 0.25:
            crops = self._photos.crops(split, 4, size, int(rng.integers(1 << 30)))
            pixels = 150 + crops[rng.integers(4)].astype(np.float32) * 0.4
        else:
            tint, noise = rng.uniform(0, 50, 3), rng.normal(0, rng.uniform(0, 6), (size[1], size[0], 1))
            pixels = np.full((size[1], size[0], 3), 255.0) - tint + noise
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))

    def line(
        self, rng: Generator, split: str, size: tuple[int, int], n_chars: tuple[int, int] = (4, 24)
    ) -> Image.Image:
        """A printed line of a few words, as high as asked, and at most as wide."""
        return self.printed(rng, split, size, self.words(rng, split, n_chars))

    def printed(self, rng: Generator, split: str, size: tuple[int, int], text: str) -> Image.Image:
        """A line that says this."""
        font = self.font(rng, 34)
        picture = self.paper(rng, (int(font.getbbox(text)[2]) + 16, 48), split)
        ink = _colour(rng, 90)
        ImageDraw.Draw(picture).text((8, int(rng.integers(0, 8))), text, font=font, fill=ink)
        if rng.random() < 0.5:
            picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.0)))
        width = min(size[0], max(8, round(picture.width * size[1] / picture.height)))
        return picture.resize((width, size[1]), Image.Resampling.BILINEAR)

    def words(self, rng: Generator, split: str, n_chars: tuple[int, int]) -> str:
        """Words that follow each other, as many characters as one of these at least and the other at most."""
        sentences = self.sentences(split)
        words, text = sentences[rng.integers(len(sentences))].split(), ""
        first = rng.integers(len(words))
        for word in words[first:] + words[:first]:
            if text and len(text) + len(word) > rng.integers(*n_chars):
                break
            text = (text + " " + word).strip()
        return text[: n_chars[1]]

    def page(
        self, rng: Generator, split: str, size: tuple[int, int], *, table: float = 0.35, figure: float = 0.35
    ) -> Image.Image:
        """A page of a document: a title, then paragraphs, tables and figures as probable as asked."""
        page = _Page(self, self._photos, rng, split, size)
        page.write_title()
        while page.has_room:
            kind = rng.random()
            if kind < figure and page.left > page.height * 0.3:
                page.paste_figure()
            elif kind < figure + table and page.left > page.height * 0.25:
                page.draw_table()
            else:
                page.write_paragraph()
        return page.picture


class _Page:
    """A page while it is being set, from top to bottom."""

    def __init__(self, writing: Writing, photos: Photos, rng: Generator, split: str, size: tuple[int, int]) -> None:
        self.writing, self.photos, self.rng, self.split = writing, photos, rng, split
        self.sentences = writing.sentences(split)
        self.width, self.height = size
        paper = tuple(int(v) for v in 255 - rng.integers(0, 25, 3))
        self.picture = Image.new("RGB", size, paper)
        self.draw = ImageDraw.Draw(self.picture)
        self.margin = int(self.width * rng.uniform(0.05, 0.11))
        self.y = int(self.height * rng.uniform(0.04, 0.08))
        self.font: Font
        self.line_height: float

    @property
    def left(self) -> int:
        """Pixels below the last line."""
        return self.height - self.y

    @property
    def has_room(self) -> bool:
        """Whether another few lines fit."""
        return self.y < self.height - self.margin - 3 * self.line_height

    def write_title(self) -> None:
        """A title, and the choice of the font for the rest."""
        font = self.writing.font(self.rng, self.width * 0.045)
        self.draw.text((self.margin, self.y), self._sentence()[:32], font=font, fill=(10, 10, 10))
        self.y += int(self.width * 0.09)
        self.font = self.writing.font(self.rng, self.width * self.rng.uniform(0.018, 0.030))
        self.line_height = self.font.size * 1.35

    def paste_figure(self) -> None:
        """A photo and its caption."""
        rng, margin = self.rng, self.margin
        height = int(self.height * rng.uniform(0.15, 0.25))
        crops = self.photos.crops(self.split, 8, (self.width - 4 * margin, height), int(rng.integers(1 << 30)))
        self.picture.paste(Image.fromarray(crops[rng.integers(8)]), (2 * margin, self.y))
        self.y += height + 6
        self._caption("Figure", 3 * margin)
        self.y += int(2 * self.line_height)

    def draw_table(self) -> None:
        """A table under its caption."""
        room = self.left - self.margin - 2 * self.line_height
        height = int(min(room, self.height * self.rng.uniform(0.15, 0.25)))
        self._caption("Table", self.margin)
        self.y += int(1.5 * self.line_height)
        box = (self.margin, self.y, self.width - self.margin, self.y + height)
        _draw_table(self.draw, box, self.font, self.sentences, self.rng)
        self.y += height + int(self.line_height)

    def write_paragraph(self) -> None:
        """A few lines of running text."""
        words = " ".join(self.sentences[i] for i in self.rng.integers(len(self.sentences), size=6)).split()
        for _ in range(self.rng.integers(3, 9)):
            if self.y > self.height - self.margin - self.line_height:
                break
            text = ""
            while words and self.draw.textlength(text + words[0], font=self.font) < self.width - 2 * self.margin:
                text += words.pop(0) + " "
            self.draw.text((self.margin, self.y), text, font=self.font, fill=(20, 20, 20))
            self.y += int(self.line_height)
        self.y += int(self.line_height * 0.8)

    def _caption(self, kind: str, x: int) -> None:
        text = f"{kind} {self.rng.integers(1, 9)}. {self._sentence()[:38]}"
        self.draw.text((x, self.y), text, font=self.font, fill=(20, 20, 20))

    def _sentence(self) -> str:
        return self.sentences[self.rng.integers(len(self.sentences))]


def _draw_table(
    draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], font: Font, sentences: list[str], rng: Generator
) -> None:
    left, top, right, bottom = box
    n_columns = int(rng.integers(2, 6))
    n_rows = max(2, min(9, int((bottom - top) / (font.size * 1.6))))
    xs, ys = np.linspace(left, right, n_columns + 1), np.linspace(top, bottom, n_rows + 1)
    _draw_rules(draw, xs, ys, style=int(rng.integers(3)))
    words = [word.strip(".,:()") for i in rng.integers(len(sentences), size=30) for word in sentences[i].split()]
    words = [word for word in words if 2 < len(word) < 10] or ["value"]
    for row in range(n_rows):
        for column in range(n_columns):
            if row == 0 or column == 0:
                text = words[rng.integers(len(words))]
            else:
                text = f"{{:.{int(rng.integers(3))}f}}".format(rng.uniform(0, 999))
            while text and draw.textlength(text, font=font) > xs[1] - xs[0] - 6:
                text = text[:-1]
            draw.text((xs[column] + 4, ys[row] + 2), text, font=font, fill=(0, 0, 0))


def _draw_rules(draw: ImageDraw.ImageDraw, xs: np.ndarray, ys: np.ndarray, *, style: int) -> None:
    """Rules of a table: 0 a grid, 1 all rows, 2 only around the head and below."""
    for i, y in enumerate(ys):
        if style < 2 or i in (0, 1, len(ys) - 1):
            draw.line([(xs[0], y), (xs[-1], y)], fill=(0, 0, 0), width=1)
    if style == 0:
        for x in xs:
            draw.line([(x, ys[0]), (x, ys[-1])], fill=(0, 0, 0), width=1)


def _colour(rng: Generator, brightest: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(0, brightest, 3))
