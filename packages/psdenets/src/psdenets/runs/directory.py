"""The run directory: its files, and whether it contains a started or finished run."""

import platform
import re
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.runs.checksums import KNOWN, NAME, WITH_CHECKSUMS, Folder
from psdenets.runs.digests import Damaged
from psdenets.runs.lock import NAME as LOCK


@dataclass(frozen=True)
class RunDir:
    """A run directory: config.json, data.json, metrics.jsonl, checkpoints/, and the results of a finished run."""

    path: Path
    new: bool = False  # whether `choose` has just created it

    @classmethod
    def choose(cls, config: Config) -> Self:
        """The directory of --out, or a new one under ./runs, which is created so that no other process chooses it."""
        if config.out is not None:
            return cls(Path(config.out))
        folder = re.sub(r"[^\w.-]+", "-", config.data_name).strip("-.") or config.dataset
        stem = f"{folder}-{config.preset or config.slug}" if config.dataset == "imagefolder" else config.preset
        stem = stem or f"{config.dataset.replace(':', '-')}-{config.slug}"
        for n in range(1, 10_000):
            path = Path("runs") / f"{stem}-seed{config.seed}{'' if n == 1 else f'-{n}'}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise BadInput(f"could not create {path}: {error.strerror}") from None
            return cls(path, new=True)
        raise BadInput(f"expected a free name under runs/, but {stem}-seed{config.seed} is taken 9,999 times")

    @property
    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return self.file("config.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run was finished here: metrics.json is written last."""
        return self.file("metrics.json").exists()

    @property
    def folder(self) -> Folder:
        """The files with checksums."""
        return Folder(self.path)

    def file(self, name: str) -> Path:
        """Path of a file of the run."""
        return self.path / name

    def begin(self, config: Config, spec: ImageSpec, sizes: dict[str, int], checksum: str | None = None) -> None:
        """Create the directory and write config.json; raise BadInput if it already contains a run or other files."""
        if self.holds_run:
            raise BadInput(f"expected a new --out, got {self.path}, which holds a run; resume it with --resume")
        if self.path.exists() and (not self.path.is_dir() or any(map(_foreign, self.path.iterdir()))):
            raise BadInput(f"expected a new or empty --out, got {self.path}, which holds other files")
        about = {"format": WITH_CHECKSUMS, "images": asdict(spec), "sizes": sizes, "versions": versions()}
        self.folder.write_json("data.json", about | ({} if checksum is None else {"checksum": checksum}))
        self.folder.write_json("config.json", {**config.as_dict(), "out": str(self.path)})

    def extended_by(self, config: Config) -> bool:
        """Whether a config has other epochs than the run that was started here."""
        wanted = config.as_dict().get("epochs")
        return self.holds_run and self.folder.read_json("config.json", dict).get("epochs") != wanted

    def reopen(self, config: Config) -> None:
        """Make a finished run unfinished, to be continued with another config; interrupted, it finishes as before."""
        self.adopt()
        self.folder.remove("metrics.json")
        self.folder.write_json("config.json", {**config.as_dict(), "out": str(self.path)})

    def adopt(self) -> None:
        """Record checksums of a run that an earlier version wrote; does nothing if it has checksums."""
        if self.folder.records() is None:
            self.record()

    def record(self) -> None:
        """Record checksums of all files as they are now.

        Those of checkpoints and chains come first, so the run itself has checksums only once all of it has.
        """
        run = uuid.uuid4().hex
        for inner in self._inner():
            Folder(inner, run).record(sorted(path.name for path in inner.iterdir() if _recorded(path)))
        Folder(self.path, run).record(name for name in KNOWN if self.file(name).is_file())

    def folders(self) -> list[Folder]:
        """The run directory, its checkpoints and its chains, each with its own checksums."""
        run = self.folder.id or None
        return [self.folder, *(Folder(inner, run) for inner in self._inner())]

    def _inner(self) -> list[Path]:
        found = (*sorted(self.file("checkpoints").glob("epoch-*")), self.file("chains"))
        return [path for path in found if path.is_dir()]

    def sweep(self) -> None:
        """Remove temporary files that a killed process left; only one process writes to a run."""
        for folder in (self.path, self.file("checkpoints"), self.file("chains")):
            for path in folder.glob(".*.tmp"):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def verify(self) -> None:
        """Raise `Damaged` if a file of a finished run is missing or damaged."""
        self.folder.verify()
        for name in ("config.json", "data.json", "model.safetensors", "predictions.npz", "metrics.json"):
            if not self.file(name).is_file():
                raise Damaged(f"{self.file(name)} is missing")


def _recorded(path: Path) -> bool:
    """Whether a file of a checkpoint or of chains gets a checksum."""
    return path.suffix in (".json", ".safetensors") and path.name != NAME and not path.name.startswith(".")


def _foreign(path: Path) -> bool:
    """Whether a file is not just left over from a run that was killed while it was starting."""
    return path.name not in ("data.json", NAME, LOCK) and not (path.name.startswith(".") and path.name.endswith(".tmp"))


def versions() -> dict[str, str]:
    """Versions and thread count; besides config and seed, the results depend on these."""
    import torch

    import psdenets
    import sdeweights

    return {
        "psdenets": psdenets.__version__,
        "sdeweights": sdeweights.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
    }
