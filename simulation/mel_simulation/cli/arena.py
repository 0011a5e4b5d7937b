"""``flwr-mel arena``: our schemes against other methods on one virtual clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mel_simulation.cli.many import Loaded, command
from mel_simulation.ray_session import Show

_FOLDER = Path(__file__).parents[1] / "arena" / "profiles"
_PROFILES = {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def _load(file: Path, where: Path, known: list[Path], data_dir: str) -> Loaded:
    from mel_simulation.arena import page, run, verdict  # noqa: PLC0415 (takes a moment)
    from mel_simulation.arena.setting import read_profile  # noqa: PLC0415

    profile, store = read_profile(file, data_dir), run.Store(where, known)

    def work(show: Show, workers: int, ray_address: str) -> None:
        run.hold(profile, store, show, workers, ray_address)
        page.write(verdict.Arena.read(store.collect(profile)), where)

    notices = [setting.job.notice for setting in profile.settings]
    return notices, work, partial(store.collect, profile)


app = command(
    "arena",
    "bouts",
    _PROFILES,
    _load,
    "Compare our schemes with other methods, on one virtual clock.\n\n"
    "Time and energy to an accuracy are compared on paired seeds. Results: OUT/arena.jsonl, one line per "
    "bout; OUT/ARENA.md and OUT/figures/arena.png; OUT/logs has the events of every bout. --data-dir has the "
    "data as torchvision stores them, or idx files below mnist and fashion-mnist; tinyshakespeare.txt.",
)
