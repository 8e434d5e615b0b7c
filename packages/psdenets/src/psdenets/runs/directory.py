"""The run directory: its files, and whether it contains a started or finished run."""

import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.runs.files import write_json


@dataclass(frozen=True)
class RunDir:
    """A run directory: config.json, data.json, metrics.jsonl, checkpoints/, and the results of a finished run."""

    path: Path

    @classmethod
    def choose(cls, config: Config) -> Self:
        """The directory of --out, or a new one under ./runs."""
        if config.out is not None:
            return cls(Path(config.out))
        folder = re.sub(r"[^\w.-]+", "-", config.data_name).strip("-.") or config.dataset
        stem = f"{folder}-{config.preset or config.slug}" if config.dataset == "imagefolder" else config.preset
        stem = stem or f"{config.dataset.replace(':', '-')}-{config.slug}"
        names = (f"{stem}-seed{config.seed}{'' if n == 1 else f'-{n}'}" for n in range(1, 10_000))
        return cls(next(Path("runs") / name for name in names if not (Path("runs") / name).exists()))

    @property
    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return self.file("config.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run was finished here: metrics.json is written last."""
        return self.file("metrics.json").exists()

    def file(self, name: str) -> Path:
        """Path of a file of the run."""
        return self.path / name

    def begin(self, config: Config, spec: ImageSpec, sizes: dict[str, int], checksum: str | None = None) -> None:
        """Create the directory and write config.json; raise BadInput if it already contains a run or other files."""
        if self.holds_run:
            raise BadInput(f"expected a new --out, got {self.path}, which holds a run; resume it with --resume")
        if self.path.exists() and (not self.path.is_dir() or any(map(_foreign, self.path.iterdir()))):
            raise BadInput(f"expected a new or empty --out, got {self.path}, which holds other files")
        about = {"images": asdict(spec), "sizes": sizes, "versions": versions()}
        write_json(self.file("data.json"), about | ({} if checksum is None else {"checksum": checksum}))
        write_json(self.file("config.json"), {**config.as_dict(), "out": str(self.path)})

    def reopen(self, config: Config) -> None:
        """Make a finished run unfinished, to be continued with another config; interrupted, it finishes as before."""
        self.file("metrics.json").unlink(missing_ok=True)
        write_json(self.file("config.json"), {**config.as_dict(), "out": str(self.path)})


def _foreign(path: Path) -> bool:
    """Whether a file is not just left over from a run that was killed while it was starting."""
    return not (path.name == "data.json" or (path.name.startswith(".") and path.name.endswith(".tmp")))


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
