"""``flwr-mel arena``: our schemes against other methods on one virtual clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flwr_mel._validate import complain
from mel_simulation.cli import many

EXAMPLES = (
    "Examples:\n\nflwr-mel arena quick\n\nflwr-mel arena full --data-dir data --out results/arena\n\n"
    "It may be killed at any time; the same command continues."
)
_FOLDER = Path(__file__).parents[1] / "arena" / "profiles"
_PROFILES = {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}

app = typer.Typer(add_completion=False)


@app.command(
    epilog=EXAMPLES,
    help="Compare our schemes with other methods, on one virtual clock.\n\n"
    "Time and energy to an accuracy are compared on paired seeds. Results: OUT/arena.jsonl, one line per "
    "bout; OUT/ARENA.md and OUT/figures/arena.png; OUT/logs has the events of every bout. The data in "
    "--data-dir are as torchvision stores them, or idx files below mnist and fashion-mnist, and "
    "tinyshakespeare.txt.\n\n" + many.help_on(_PROFILES),
)
def arena(
    profile: Annotated[str, many.profile_argument(_PROFILES)] = "quick",
    out: many.Out = None,
    known: many.Known = None,
    data_dir: many.DataDir = "",
    workers: many.Workers = 0,
    ray_address: many.RayAddress = "",
) -> None:
    """Hold an arena."""
    path = _PROFILES.get(profile, Path(profile))
    where = (out or Path("runs") / f"arena-{path.stem}").resolve()

    def load() -> many.Loaded:
        if not path.is_file():
            raise complain("profile", f"one of {', '.join(_PROFILES)}, or a TOML file", profile)
        from mel_simulation.arena import run  # noqa: PLC0415 (takes a moment)
        from mel_simulation.arena.setting import read_profile  # noqa: PLC0415

        which, store = read_profile(path, data_dir), run.Store(where, known or ())
        notices = [setting.job.notice for setting in which.settings]
        return notices, partial(run.hold, which, store), partial(store.collect, which)

    results = many.finished("arena", "bouts", load, workers, ray_address)
    from mel_simulation.arena import page, verdict  # noqa: PLC0415

    paths = page.write(verdict.Arena.read(results), where)
    typer.echo("\n".join(map(str, [results, *paths])))
