"""Speech that ships with a Python package, and music made up here."""

import wave
from functools import cached_property

import numpy as np

from experiments.zoo.packages import PackageStore

__all__ = ["Speech", "log_mel", "music"]

PYANNOTE = "pip:pyannote.audio==4.0.7"
SPEECH_HZ = 16000
CHORDS = [(0,), (0, 4, 7), (0, 3, 7), (0, 7), (0, 12)]
Generator = np.random.Generator


class Speech:
    """Two people talking, at 16 kHz; the first half calibrates, the second evaluates."""

    def __init__(self, store: PackageStore) -> None:
        self._store = store

    @cached_property
    def _recording(self) -> np.ndarray:
        with wave.open(str(self._store.members(PYANNOTE, [r"sample/sample\.wav$"])[0])) as file:
            rate, n_channels = file.getframerate(), file.getnchannels()
            frames = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        sound = frames.reshape(-1, n_channels)[:, 0]
        if rate != SPEECH_HZ:
            moments = np.arange(0, len(sound) - 1, rate / SPEECH_HZ)
            sound = np.interp(moments, np.arange(len(sound)), sound).astype(np.float32)
        return np.asarray(sound / np.abs(sound).max())

    def clip(self, rng: Generator, split: str, n: int) -> np.ndarray:
        """``n`` samples from a random place, at a random level, with noise; float32."""
        half = len(self._recording) // 2
        recording = self._recording[:half] if split == "calib" else self._recording[half:]
        start = rng.integers(0, max(1, len(recording) - n))
        clip = recording[start : start + n]
        clip = np.pad(clip, (0, n - len(clip))) * rng.uniform(0.2, 0.9)
        noise: np.ndarray = rng.normal(0, 1, n).astype(np.float32)
        if rng.random() < 0.5:  # low-passed, as of a fan
            noise = np.convolve(noise, np.ones(16) / 4, "same")
        return np.asarray(clip + noise * 10 ** rng.uniform(-4, -1.6), np.float32)


def music(rng: Generator, n: int, rate_hz: int) -> np.ndarray:
    """A few plucked or struck chords, with harmonics that decay; float32, shape ``(n,)``."""
    sound = np.zeros(n)
    for _ in range(rng.integers(3, 8)):
        root, start = int(rng.integers(36, 72)), rng.integers(0, int(n * 0.8))
        for interval in CHORDS[rng.integers(5)]:
            t = np.arange(n - start) / rate_hz
            note = _note(rng, root + interval, t, rate_hz)
            sound[start:] += note * np.minimum(1, t * 200) * rng.uniform(0.3, 1)
    sound = sound / (np.abs(sound).max() + 1e-9) * rng.uniform(0.3, 0.95) + rng.normal(0, 1e-3, n)
    return np.asarray(sound, np.float32)


def _note(rng: Generator, midi: int, t: np.ndarray, rate_hz: int) -> np.ndarray:
    pitch_hz, decay = 440 * 2 ** ((midi - 69) / 12), rng.uniform(1.5, 5)
    partials = (
        np.sin(2 * np.pi * pitch_hz * k * t * (1 + 1e-4 * k * k))
        * np.exp(-decay * t * (0.6 + 0.4 * k))
        / k ** rng.uniform(1, 1.8)
        for k in range(1, 9)
        if pitch_hz * k < rate_hz / 2
    )
    return np.asarray(sum(partials))


def log_mel(sound: np.ndarray, n_mels: int = 80, n_fft: int = 400, hop: int = 160) -> np.ndarray:
    """Whisper's log-mel spectrogram at 16 kHz; float32, shape ``(n_mels, len(sound) // hop)``."""
    padded = np.pad(sound, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop][:-1]
    power = np.abs(np.fft.rfft(frames * np.hanning(n_fft + 1)[:-1])) ** 2
    energy = np.log10(np.maximum(_mel_filters(n_mels, n_fft) @ power.T, 1e-10))
    return np.asarray((np.maximum(energy, energy.max() - 8) + 4) / 4, np.float32)


def _mel_filters(n_mels: int, n_fft: int) -> np.ndarray:
    """Slaney's triangles of equal area."""
    mels = np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), n_mels + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hz = np.fft.rfftfreq(n_fft, 1 / SPEECH_HZ)
    rising, falling = (hz - low) / (middle - low), (high - hz) / (high - middle)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low))
