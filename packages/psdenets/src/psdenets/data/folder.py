"""`--dataset imagefolder`: pictures of any sizes in folders named after their classes.

    ROOT/CLASS/*              a test set is split off, with the same share of every class
    ROOT/train/CLASS/*, ROOT/test/CLASS/*

Hidden files and folders are ignored; other files that are not pictures, folders without pictures, and pictures that
cannot be read are ignored and counted in one line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psdenets.data.images import Images, Pool
from psdenets.data.pictures import SUFFIXES, size_of, visible_files
from psdenets.data.spec import ImageSpec
from psdenets.data.stored import Decoding, PictureFile, Progress, Stored, cache_folder, stored
from psdenets.errors import BadInput

if TYPE_CHECKING:
    from psdenets.config import Config

_SMALLEST, _LARGEST, _MULTIPLE = 32, 64, 8  # image sizes that are chosen
_LOOKED_AT = 500  # pictures whose sizes determine the image size
_MOST_WORKERS = 8
_NAMED = 3  # files that are named in a message


class Listing(NamedTuple):
    """The pictures of a folder, its classes, and what was ignored."""

    files: list[PictureFile]
    classes: list[str]
    others: list[str]  # files that are not pictures, and folders without pictures


def imagefolder(root: Path, how: Decoding | None = None) -> Pool:
    """Images in root/train/CLASS/ and root/test/CLASS/, or only in root/CLASS/; then a test set is split off."""
    listing, test_listing = _listings(root)
    how = how or Decoding(chosen_size(listing.files))
    train = stored(listing.files, root, how)
    held_out = None if test_listing is None else stored(test_listing.files, root, how)
    parts = [part for part in (train, held_out) if part is not None]
    for part in parts:
        if not len(part.labels):
            raise BadInput(f"expected pictures in {root}, but none can be read: {part.broken[0][1]}")
    mean, std = train.moments()
    spec = ImageSpec(3, how.size, how.size, tuple(listing.classes), mean, std)
    notes = [_size_note(how), *_ignored([*listing.others, *(test_listing.others if test_listing else [])], parts)]
    return Pool(
        Images(train.pixels, train.labels),
        None if held_out is None else Images(held_out.pixels, held_out.labels),
        spec,
        "-".join(part.checksum for part in parts),
        tuple(notes),
        balanced_split=True,
    )


def decoding_of(config: Config, root: Path, progress: Progress) -> Decoding:
    """How the pictures of a run are decoded; a size that is not given is chosen from the folder."""
    size = config.image_size or chosen_size(_listings(root)[0].files, _multiple(config))
    workers = config.workers or min(_MOST_WORKERS, _cpus())
    return Decoding(size, config.aspect, cache_folder(config.cache_dir), workers, progress)


def _cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_size(files: Sequence[PictureFile], multiple: int = _MULTIPLE) -> int:
    """The median of the shorter sides, from 32 to 64, rounded to a multiple that the network can halve."""
    step = max(1, len(files) // _LOOKED_AT)
    sides = [min(size) for file in files[::step] if (size := size_of(file.path)) is not None]
    median = float(np.median(sides)) if sides else _SMALLEST
    return max(1, round(min(max(median, _SMALLEST), _LARGEST) / multiple)) * multiple


def _multiple(config: Config) -> int:
    """A side that the network can halve as often as it does; at least 8."""
    flow, net = config.system.flow, config.system.net
    if flow is None:
        return _MULTIPLE
    return max(_MULTIPLE, int(2 ** (flow.squeeze_input + len(net.scales) - (not config.system.features.learned))))


def _listings(root: Path) -> tuple[Listing, Listing | None]:
    """Pictures for training, and those for testing if they are in a folder of their own."""
    if not root.is_dir():
        raise BadInput(f"expected --data-root to be a folder of pictures, got {root}")
    apart = (root / "train").is_dir() and any(entry.is_dir() for entry in (root / "train").iterdir())
    listing = _listed(root / "train" if apart else root)
    if len(listing.classes) < 2:
        raise BadInput(
            f"expected at least two classes, one folder each with pictures, in {root}, got only {listing.classes[0]!r}"
        )
    if not apart:
        return listing, None
    unused = [f"{d.name}/" for d in sorted(root.iterdir()) if d.name not in ("train", "test") and _is_visible(d)]
    listing = listing._replace(others=[*listing.others, *unused])
    return listing, _listed(root / "test", listing.classes) if (root / "test").is_dir() else None


def _is_visible(folder: Path) -> bool:
    return folder.is_dir() and not folder.name.startswith(".")


def _listed(folder: Path, classes: list[str] | None = None) -> Listing:
    """The pictures in folder/CLASS/; raises BadInput for classes that are not among the given ones."""
    files: dict[str, list[Path]] = {}
    others = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        inside = visible_files(entry) if entry.is_dir() else [entry]
        pictures = sorted(path for path in inside if path.suffix.lower() in SUFFIXES) if entry.is_dir() else []
        others += [str(path.relative_to(folder)) for path in sorted(set(inside) - set(pictures))]
        if pictures:
            files[entry.name] = pictures
        elif entry.is_dir() and not inside:
            others.append(f"{entry.name}/")
    names = sorted(files) if classes is None else classes
    if not files:
        loose = sum(Path(name).suffix.lower() in SUFFIXES for name in others)
        got = f"{loose} pictures that are in no such folder" if loose else "no picture"
        raise BadInput(f"expected pictures in {folder}/CLASS/, one folder per class, got {got}")
    if set(files) - set(names):
        raise BadInput(f"expected only the training classes in {folder}, also got {sorted(set(files) - set(names))}")
    listed = [PictureFile(path, label) for label, name in enumerate(names) for path in files.get(name, [])]
    return Listing(listed, names, others)


def _size_note(how: Decoding) -> str:
    kept = "padded" if how.aspect == "pad" else "cropped"
    return f"pictures are resized to {how.size} x {how.size} (--image-size), {kept} to keep their aspect (--aspect)"


def _ignored(others: list[str], parts: Sequence[Stored]) -> list[str]:
    """One line about what is not a picture in a class, and one about pictures that cannot be read."""
    broken = [path for part in parts for path, _ in part.broken]
    lines = []
    if others:
        lines.append(f"ignored, because they are not pictures in a class: {_some(others)}")
    if broken:
        first = next(reason for part in parts for _, reason in part.broken)
        lines.append(f"ignored, because they cannot be read: {_some(broken)}; the first: {first}")
    return lines


def _some(names: list[str]) -> str:
    """The number of files, and the first of them: "5 (a, b, c, ...)"."""
    more = ", ..." if len(names) > _NAMED else ""
    return f"{len(names)} ({', '.join(names[:_NAMED])}{more})"


def with_size(config: Config, root: Path) -> Config:
    """The config of a new run on a folder, with its folder and the image size chosen from it."""
    size = config.image_size or chosen_size(_listings(root)[0].files, _multiple(config))
    return config.replace(image_size=size, data_root=str(root))
