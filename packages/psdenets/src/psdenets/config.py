"""The configuration of a run: one frozen value that determines everything.

    Config(model="psde", cut="vertical", ratio=0.25, lr=1e-3)      options are given flat (also in files and as flags)
    config.system.cut.ratio, config.training.lr, config.seed       and read nested

Nothing here imports torch, so `--help` is fast.
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from psdenets.errors import BadInput, did_you_mean
from psdenets.options.fields import OPEN_UNIT, THREADS, at_least, check, flag, option
from psdenets.options.training import TrainingOptions
from psdenets.registries import DATASETS
from psdenets.systems import SYSTEMS

ALIASES = {"f_h": "block"}  # alternative name -> option
GROUPS = ("cut", "network", "features", "weight process", "head", "other systems", "data", "training", "run")


@dataclass(frozen=True, init=False)
class Config:
    """The configuration of one run, validated on construction.

    Options are given by name, regardless of their group. An option that the system does not have raises `BadInput`.

    Example:
        >>> Config(cut="vertical", order="sde-first", ratio=0.25).system.cut.window
        (0.0, 0.25)
        >>> Config(model="resnet32", width=8).system.net
        NetOptions(blocks='1-1-1', width=8)
    """

    preset: str | None = option(None, "start from the values of this preset (--list-presets)")
    model: str = option("psde", "system to train; --help systems lists them")
    seed: int = option(0, "seed of weights, data order and noise", at_least(0))
    out: str | None = option(None, "run directory (default: a new one under ./runs)")
    device: str = option("auto", "cpu, cuda, cuda:1 or mps; auto uses CUDA if it is available")
    threads: int | None = option(None, "CPU threads (default: one for small images, else torch's choice)", THREADS)
    dataset: str = option(
        "digits",
        "images to classify: a name, or module:attribute in your own Python file, which is executed",
        registry=DATASETS,
    )
    data_root: str | None = option(None, "directory containing the data sets (default: $PSDENETS_DATA, then ./data)")
    download: bool = option(False, "download the data set if it is missing")
    image_size: int | None = option(
        None, "imagefolder: height and width of the images (default: chosen from the folder, 32 to 64)", at_least(8)
    )
    aspect: Literal["pad", "crop"] = option(
        "pad", "imagefolder: keep the aspect of pictures by filling up with their mean colour, or by cutting the middle"
    )
    cache_dir: str | None = option(
        None, "imagefolder: directory for decoded pictures (default: $XDG_CACHE_HOME or ~/.cache, then psdenets)"
    )
    workers: int | None = option(
        None, "imagefolder: threads that decode pictures (default: one per CPU, at most 8)", at_least(1)
    )
    val_share: float = option(0.1, "share of the training images held out for validation", OPEN_UNIT)
    split_seed: int = option(0, "seed of the split; not --seed, so runs with other seeds share it", at_least(0))
    limit_train: int | None = option(None, "limit the number of training images", at_least(1))
    limit_test: int | None = option(None, "limit the number of test images", at_least(1))
    system: Any = None
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)

    def __init__(self, **options: Any) -> None:
        values = _unaliased(options)
        if "system" in values:
            raise BadInput(_unknown("system"))
        for item in dataclasses.fields(self):
            default = {} if item.name == "sources" else item.default
            object.__setattr__(self, item.name, values.pop(item.name, default))
        check(self)
        _check_sources(self.sources)
        if self.model not in SYSTEMS:
            raise BadInput(f"expected --model to be one of {', '.join(SYSTEMS)}, got {self.model}")
        system = SYSTEMS[self.model]
        for name in values.keys() - system.takes(values):
            raise BadInput(_not_taken(name, self.model))
        object.__setattr__(self, "system", system.configured(values, self.dataset))

    @classmethod
    def read(cls, values: Mapping[str, Any], **changes: Any) -> Self:
        """Build the config of a file or a preset, with some options changed.

        Options in `values` that belong to other systems are ignored, because files of earlier versions contain all
        options of all systems.
        """
        if not isinstance(values, Mapping):
            raise BadInput(f"expected options by name, got {type(values).__name__}")
        known, kept = known_options(), _unaliased(values)
        for name in kept.keys() - known.keys() - {"sources"}:
            raise BadInput(_unknown(name))
        values = {**kept, **_unaliased(changes)}
        model = values.get("model", cls.model)
        system = SYSTEMS.get(model) if isinstance(model, str) else None  # the constructor refuses other types
        taken = {*_own(), *changes, "sources"} | (set() if system is None else system.takes(values))
        return cls(**{name: value for name, value in values.items() if name in taken})

    def replace(self, **changes: Any) -> Self:
        """A copy with some options changed; if the model changes, options that it does not have are dropped."""
        return self.read(self.as_dict(), **changes)

    def as_dict(self) -> dict[str, Any]:
        """The options that the system has, as flat plain values."""
        recorded = {"sources": self.sources} if self.sources else {}
        return {**{name: getattr(self, name) for name in _own()}, **self.system.flat(), **recorded}

    @property
    def training(self) -> TrainingOptions:
        """Options of gradient descent; raises `TypeError` for a system without them."""
        if self.system.training is None:
            raise TypeError(f"expected a system that is trained by gradient descent, got {self.model}")
        found: TrainingOptions = self.system.training
        return found

    @property
    def references(self) -> list[str]:
        """Values that refer to custom code."""
        registries = {name: known.registry for name, known in known_options().items() if known.registry}
        values = self.as_dict()
        return [values[name] for name, names in registries.items() if values.get(name) not in (None, *names)]

    def idle(self) -> dict[str, str]:
        """Options that have no effect given the others, with the message for someone who sets them."""
        own = (
            {}
            if self.dataset == "imagefolder"
            else {
                name: f"expected {flag(name)} with --dataset imagefolder, got --dataset {self.dataset}"
                for name in _OF_FOLDERS
            }
        )
        return {**own, **self.system.idle()}

    @property
    def data_name(self) -> str:
        """What the images are called: the name of a folder of pictures, else the value of --dataset."""
        if self.dataset != "imagefolder" or self.data_root is None:
            return self.dataset
        return Path(self.data_root).absolute().name or self.dataset

    @property
    def slug(self) -> str:
        """A short name for directories: "vertical-ode-first", "resnet32"."""
        return self.system.cut.slug if "cut" in self.system.flat() else self.model

    @property
    def title(self) -> str:
        """A readable title: "cut vertical: noise for depth in (0.9, 1)", "resnet32"."""
        cut = self.system.cut
        return f"cut {cut.cut}: {cut.words}" if "cut" in self.system.flat() else self.model


class Known(NamedTuple):
    """An option: its group, type, default, help text and, if its values are names, their registry."""

    group: str
    kind: Any
    default: Any
    text: str
    registry: Mapping[str, str] | None


@cache
def known_options() -> dict[str, Known]:
    """All options of all systems, by flat name."""
    found = {}
    parts = [(part.kind, part.open) for system in SYSTEMS.values() for part in system.options.parts.values()]
    for kind, names in [(Config, _own()), *parts]:
        hints = typing.get_type_hints(kind)
        for item in dataclasses.fields(kind):
            if item.name in names and item.name not in found:
                title, meta = getattr(kind, "group", "data" if item.name in _DATA else "run"), item.metadata
                found[item.name] = Known(title, hints[item.name], item.default, meta["help"], meta["registry"])
    return found


_OF_FOLDERS = ("image_size", "aspect", "cache_dir", "workers")
_DATA = ("dataset", "data_root", "download", *_OF_FOLDERS, "val_share", "split_seed", "limit_train", "limit_test")


def _own() -> list[str]:
    return [item.name for item in dataclasses.fields(Config) if "help" in item.metadata]


def _check_sources(sources: Any) -> None:
    """Raise `BadInput` unless these are file and SHA-256 of modules, by name."""
    form = {"file": str, "sha256": str}
    found = list(sources.values()) if isinstance(sources, Mapping) else [None]
    if not all(isinstance(one, Mapping) and {key: type(value) for key, value in one.items()} == form for one in found):
        raise BadInput(f"expected sources to be file and sha256 of modules by name, got {sources!r}")


def _unaliased(values: Mapping[str, Any]) -> dict[str, Any]:
    for alias, name in ALIASES.items():
        if alias in values and name in values:
            raise BadInput(f"expected either {flag(alias)} or {flag(name)}, got both")
    return {ALIASES.get(name, name): value for name, value in values.items()}


def _not_taken(name: str, model: str) -> str:
    if name not in known_options():
        return _unknown(name)
    having = [system.name for system in SYSTEMS.values() if name in system.takes({})]
    return f"expected {flag(name)} with --model {' or '.join(having)} only, got it with --model {model}"


def _unknown(name: str) -> str:
    return f"unknown option {name}{did_you_mean(name, known_options(), cutoff=0.5)}"


def _described() -> str:
    """All options by group, for `help(Config)`."""
    known = known_options()
    lines = []
    for group in GROUPS:
        lines += ["", f"    {group}:"]
        lines += [
            f"        {name}: {option.text}{'' if option.default is None else f' (default {option.default!r})'}"
            for name, option in known.items()
            if option.group == group
        ]
    return "\n".join(lines)


Config.__doc__ = f"{Config.__doc__}\n    Options, by group:\n{_described()}\n"
