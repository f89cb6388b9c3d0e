"""Realistic inputs of each model, by the name that ``models.toml`` gives their builder.

A builder is called with the sources, the split, the number of samples and the model's file, and returns one array for
each input of the model, samples along axis 0, and ``label`` where the truth is known. The seeds are part of the zoo:
with them the arrays repeat to the byte on one version of Python and Pillow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from experiments.zoo.photos import seeded
from experiments.zoo.pictures import captcha, coloured_characters, signs_on_photo
from experiments.zoo.sound import log_mel, music
from experiments.zoo.sources import Sources
from experiments.zoo.tokens import bytes_of_ends, word_pieces

__all__ = ["BUILDERS", "Arrays", "Builder", "open_session"]

Arrays = dict[str, np.ndarray]
Builder = Callable[[Sources, str, int, Path], Arrays]

IMAGENET_MEAN, IMAGENET_STD = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)


def _channels_first(pixels: np.ndarray, mean: ArrayLike, std: ArrayLike, scale: float = 255.0) -> np.ndarray:
    normalized = (pixels.astype(np.float32) / scale - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(normalized.transpose(0, 3, 1, 2), dtype=np.float32)


def document_pictures(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Two pages to a photo with signs on it, 416 x 416, BGR."""
    rng, pictures = seeded(11, split), []
    for i in range(n):
        if i % 3 == 2:
            picture = signs_on_photo(sources, rng, split, i)
        else:
            picture = sources.writing.page(rng, split, (416, 416), table=0.15, figure=0.25)
        pictures.append(np.asarray(picture))
    return {"x": _channels_first(np.stack(pictures)[..., ::-1], 0.5, 0.5)}


def text_lines(sources: Sources, split: str, n: int, model: Path) -> Arrays:
    """Printed lines, 48 x 320, BGR, padded with zeros; the labels are the classes of their characters, then 0."""
    rng, x = seeded(12, split), np.zeros((n, 3, 48, 320), np.float32)
    classes, label = _classes_of_characters(model), np.zeros((n, 24), np.int64)
    for i in range(n):
        text = sources.writing.words(rng, split, (4, 24))
        line = sources.writing.printed(rng, split, (320, 48), text)
        x[i, :, :, : line.width] = _channels_first(np.asarray(line)[None, ..., ::-1], 0.5, 0.5)[0]
        label[i, : len(text)] = [classes[character] for character in text]
    return {"x": x, "label": label}


def _classes_of_characters(model: Path) -> dict[str, int]:
    """What a PaddleOCR model reads: the blank of CTC is class 0, the space the last one."""
    characters = open_session(model).get_modelmeta().custom_metadata_map["character"].splitlines()
    return {character: i for i, character in enumerate([*characters, " "], start=1)}


def turned_text_lines(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Printed lines, 48 x 192, BGR, every second one upside down, which is class 1."""
    rng, x = seeded(13, split), np.zeros((n, 3, 48, 192), np.float32)
    for i in range(n):
        line = sources.writing.line(rng, split, (192, 48), n_chars=(4, 14))
        if i % 2:
            line = line.rotate(180)
        x[i, :, :, : line.width] = _channels_first(np.asarray(line)[None, ..., ::-1], 0.5, 0.5)[0]
    return {"x": x, "label": np.arange(n) % 2}


def photos_caffe(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos as Caffe wants them: 224 x 224 out of 256 x 256, BGR less its mean, channels last."""
    crops = sources.photos.crops(split, n, (256, 256), 14)[:, 16:240, 16:240, ::-1].astype(np.float32)
    return {"input:0": crops - np.array([104, 117, 123], np.float32)}


def photos_tensorflow(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos, 224 x 224, RGB, (pixel - 127) / 128."""
    return {"input": _channels_first(sources.photos.crops(split, n, (224, 224), 15, smallest=0.6), 127, 128, 1.0)}


def faces_bytes(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos, most with faces, 320 x 320, RGB, 0 to 255."""
    crops = sources.photos.crops(split, n, (320, 320), 16, smallest=0.6, faces=2)
    return {"input.1": np.ascontiguousarray(crops.transpose(0, 3, 1, 2).astype(np.float32))}


def faces_signed(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos, most with faces, 256 x 256, RGB, -1 to 1, channels last."""
    crops = sources.photos.crops(split, n, (256, 256), 17, smallest=0.6, faces=2)
    return {"input:0": crops.astype(np.float32) / 127.5 - 1}


def photos_with_alpha(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos, every fourth a page of tables (plenty of straight lines), 320 x 320, RGB and ones, channels last."""
    pixels, rng = sources.photos.crops(split, n, (320, 320), 18, smallest=0.6), seeded(18, split)
    for i in range(0, n, 4):
        pixels[i] = np.asarray(sources.writing.page(rng, split, (320, 320), table=0.7, figure=0.2))
    return {"input_image_with_alpha:0": np.concatenate([pixels, np.ones_like(pixels[..., :1])], -1).astype(np.float32)}


def turned_pages(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Pages, each turned a quarter more than the one before, 224 x 224, BGR; the classes are clockwise quarters."""
    rng, pages = seeded(19, split), []
    for i in range(n):
        page = sources.writing.page(rng, split, (320, 320), table=0.2, figure=0.3).rotate(90 * (i % 4))
        pages.append(np.asarray(page.resize((256, 256), Image.Resampling.BILINEAR))[16:240, 16:240])
    x = _channels_first(np.stack(pages)[..., ::-1], IMAGENET_MEAN, IMAGENET_STD)
    return {"x": x, "label": -np.arange(n) % 4}


def music_windows(_: Sources, split: str, n: int, __: Path) -> Arrays:
    """Two seconds of chords at 22050 Hz."""
    rng = seeded(20, split)
    return {"serving_default_input_2:0": np.stack([music(rng, 43844, 22050) for _ in range(n)])[..., None]}


def speech_chunks(sources: Sources, split: str, n: int, model: Path) -> Arrays:
    """Chunks of four recordings, the last without speech, each with the state that the model had come to."""
    session, rng, chunks, states = open_session(model), seeded(21, split), [], []
    for recording in range(4):
        sound = sources.speech.clip(rng, split, 576 * 120)
        if recording == 3:  # a door slams, something hums
            loudness = 1 + 20 * (np.arange(len(sound)) % 16000 < 400)
            sound = (rng.normal(0, 0.01, len(sound)) * loudness).astype(np.float32)
        for i, (chunk, state) in enumerate(_run_vad(session, sound, n // 4 * 13 + 5)):
            if i >= 5 and (i - 5) % 13 == 0:
                chunks.append(chunk[0])
                states.append(state)
    return {"input": np.stack(chunks[:n]), "state": np.stack(states[:n]), "sr": np.full(n, 16000, np.int64)}


def _run_vad(session: Any, sound: np.ndarray, n_steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The input and the state before each step of silero's loop."""
    rate = np.array(16000, np.int64)
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros((1, 64), np.float32)
    for i in range(n_steps):
        chunk = np.concatenate([context, sound[None, i * 512 : (i + 1) * 512]], 1)
        yield chunk, state
        state, context = session.run(None, {"input": chunk, "state": state, "sr": rate})[1], chunk[:, -64:]


def speech_spectra(sources: Sources, split: str, n: int, model: Path) -> Arrays:
    """Spectra out of four noisy recordings, each with the state that the model had come to."""
    session, rng, spectra, states = open_session(model), seeded(22, split), [], []
    for _ in range(4):
        sound = sources.speech.clip(rng, split, 128 * 900)
        window, state = np.zeros(512, np.float32), np.zeros((1, 2, 128, 2), np.float32)
        for i in range(n // 4 * 97 + 20):
            window = np.r_[window[128:], sound[i * 128 : (i + 1) * 128]]
            spectrum = np.abs(np.fft.rfft(window)).astype(np.float32).reshape(1, 1, 257)
            if i >= 20 and (i - 20) % 97 == 0:
                spectra.append(spectrum[0])
                states.append(state[0])
            state = session.run(None, {"input_2": spectrum, "input_3": state})[1]
    return {"input_2": np.stack(spectra[:n]), "input_3": np.stack(states[:n])}


def file_ends(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """The first and the last 1024 bytes of files of many kinds, none of them twice."""
    rows = _distinct_ends(sources.files("calib"), n, unlike=[])
    if split == "eval":
        rows = _distinct_ends(sources.files("eval"), n, unlike=rows)
    return {"bytes": np.stack(rows)}


def _distinct_ends(files: Iterable[Path], n: int, *, unlike: list[np.ndarray]) -> list[np.ndarray]:
    seen, rows = {row.tobytes() for row in unlike}, []
    for row in map(bytes_of_ends, files):
        if row.tobytes() not in seen:
            seen.add(row.tobytes())
            rows.append(row)
        if len(rows) == n:
            break
    return rows


def sentences(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Sentences as 48 word pieces of bert-base-uncased."""
    texts = sources.writing.sentences(split)
    chosen = np.random.default_rng(23).choice(len(texts), n, replace=False)
    ids = np.array([word_pieces(sources.bert_vocabulary, texts[i], 48) for i in chosen], np.int64)
    return {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)}


def character_pictures(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Photos with a few big coloured characters, padded to 416 x 416, BGR, 0 to 255."""
    rng = seeded(24, split)
    pictures = [coloured_characters(sources, rng, photo) for photo in sources.photos.crops(split, n, (344, 200), 24)]
    pixels = np.stack(pictures)[..., ::-1].transpose(0, 3, 1, 2)
    return {"images": np.ascontiguousarray(pixels, dtype=np.float32)}


def captchas(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Short codes, 64 x 192, grey, 0 to 1."""
    rng = seeded(25, split)
    return {"input1": np.stack([np.asarray(captcha(sources, rng, split), np.float32)[None] / 255 for _ in range(n)])}


def speech_features(sources: Sources, split: str, n: int, _: Path) -> Arrays:
    """Whisper's features of eight seconds, the speech at their end."""
    rng, features = seeded(26, split), []
    for _i in range(n):
        n_samples = int(rng.integers(2, 8)) * 16000
        sound = sources.speech.clip(rng, split, n_samples)
        sound = (sound - sound.mean()) / np.sqrt(sound.var() + 1e-7)
        features.append(log_mel(np.pad(sound, (8 * 16000 - n_samples, 0)).astype(np.float64)))
    return {"input_features": np.stack(features)}


def open_session(model: Path) -> Any:  # onnxruntime has no types
    """A quiet session on one thread of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


BUILDERS: Mapping[str, Builder] = {
    builder.__name__: builder
    for builder in (
        *(document_pictures, text_lines, turned_text_lines, photos_caffe, photos_tensorflow, faces_bytes, faces_signed),
        *(photos_with_alpha, turned_pages, music_windows, speech_chunks, speech_spectra, file_ends, sentences),
        *(character_pictures, captchas, speech_features),
    )
}
