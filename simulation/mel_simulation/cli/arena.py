"""``flwr-mel arena``: our schemes against other methods on one virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from flwr_mel._validate import complain, count
from flwr_mel.tools.shell import bad_input, console, missing_packages, note, stop
from mel_simulation.cli.many import Known, RayAddress, Workers, help_on, profile_argument, why_stopped
from mel_simulation.cli.progress import progress

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
    "bout; OUT/ARENA.md and OUT/figures/arena.png; OUT/logs has the events of every bout.\n\n"
    + help_on(_PROFILES),
)
def arena(
    profile: Annotated[str, profile_argument(_PROFILES)] = "quick",
    out: Annotated[Path | None, typer.Option(help="Where results go; default: runs/arena-NAME.")] = None,
    known: Known = None,
    data_dir: Annotated[
        str,
        typer.Option(
            help="Directory of the data, as torchvision stores them, or idx files below mnist and "
            "fashion-mnist; tinyshakespeare.txt. Default: the cache, or a download."
        ),
    ] = "",
    workers: Workers = 0,
    ray_address: RayAddress = "",
) -> None:
    """Hold an arena."""
    file = _PROFILES.get(profile, Path(profile))
    where = (out or Path("runs") / f"arena-{file.stem}").resolve()
    with bad_input({"data_dir": "--data-dir", "results": "--from"}):
        count("--workers", workers)
        if not file.is_file():
            raise complain("profile", f"one of {', '.join(_PROFILES)}, or a TOML file", profile)
        data = str(Path(data_dir).resolve()) if data_dir else ""
        try:
            _hold(file, where, data, workers, ray_address, known or ())
        except ImportError as error:
            missing_packages("arena", error, "simulation")


def _hold(
    file: Path, where: Path, data_dir: str, workers: int, ray_address: str, known: Sequence[Path]
) -> None:
    with progress(console(), "bouts") as show:
        show("loading", 0, 1)
        from mel_simulation.arena import page, run, verdict  # noqa: PLC0415
        from mel_simulation.arena.bout import BrokenBout  # noqa: PLC0415
        from mel_simulation.arena.setting import read_profile  # noqa: PLC0415

        profile, store = read_profile(file, data_dir), run.Store(where, known)
        for notice in sorted({setting.job.notice for setting in profile.settings} - {""}):
            note(notice)
        why, code = why_stopped(lambda: run.hold(profile, store, show, workers, ray_address), BrokenBout)
        results = store.collect(profile)
        if why:
            stop(f"{why}. Finished bouts are in {results}; the same command continues", code)
    paths = page.write(verdict.Arena.read(results), where)
    typer.echo("\n".join(map(str, [results, *paths])))
