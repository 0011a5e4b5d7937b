"""The projects of the gallery, and how to get a copy of one, as it is or with its diff."""

import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Example:
    """One project.

    Parameters
    ----------
    name : str
        Its directory.
    accuracy : float
        What its own three rounds reach at least.
    pace : float
        Seconds that its fastest device takes for one epoch of one sample: more than this machine needs, so
        that a round is not lost in Flower's own time and not ruled by what else runs here.
    private : tuple of int, float and int, optional
        Batch size, sampling rate and steps that its diff declares for differential privacy.
    light : bool
        Needs neither torch nor the extra packages of the gallery.
    """

    name: str
    accuracy: float
    pace: float = 1e-3
    private: tuple[int, float, int] | None = None
    light: bool = False

    @property
    def path(self) -> Path:
        """Where the project is."""
        return ROOT / self.name

    @property
    def settings(self) -> dict:
        """What its pyproject.toml says to Flower."""
        return tomllib.loads((self.path / "pyproject.toml").read_text())["tool"]["flwr"]["app"]

    @property
    def diff(self) -> str:
        """The lines that make it heterogeneity-aware."""
        return (self.path / "mel.diff").read_text()

    def copy(self, directory: Path, *, wrapped: bool) -> Path:
        """Copy the project, with the diff applied if it is to be wrapped.

        Parameters
        ----------
        directory : Path
            Where to; must not exist.
        wrapped : bool
            Whether to apply the diff.
        """
        shutil.copytree(self.path, directory, ignore=shutil.ignore_patterns("__pycache__", "outputs"))
        if wrapped:
            # The ceiling keeps git from looking for a repository around the copy.
            env = {"GIT_CEILING_DIRECTORIES": str(directory.parent), "PATH": "/usr/bin:/bin:/usr/local/bin"}
            subprocess.run(["git", "apply", "mel.diff"], cwd=directory, env=env, check=True)
        return directory


GALLERY = {
    example.name: example
    for example in (
        Example("quickstart_pytorch", accuracy=0.85, pace=5e-4),
        Example("lightning", accuracy=0.6),
        Example("huggingface_lora", accuracy=0.3, pace=2e-3),
        Example("sklearn_logreg", accuracy=0.8, light=True),
        Example("numpy_mlp", accuracy=0.6, light=True),
        Example("opacus_dp", accuracy=0.5, private=(32, 0.1, 22)),
        Example("advanced_pytorch", accuracy=0.8, pace=5e-4),
        Example("classic_numpyclient", accuracy=0.6),
        Example("classic_server", accuracy=0.6, light=True),
    )
}
