"""Write the options of a simulation into its page and its pyproject.toml: ``python docs/options.py``.

They are declared in `mel_simulation.scenario.config`.
"""

from __future__ import annotations

import json
from pathlib import Path

from mel_simulation.pages import fill, markdown_table
from mel_simulation.scenario.config import Option, RunConfig, options

ROOT = Path(__file__).parents[1]
PAGE, PROJECT = ROOT / "docs" / "SIMULATION.md", ROOT / "simulation" / "pyproject.toml"
_TABLE = "[tool.flwr.app.config]\n"


def table() -> str:
    """Return the options as a Markdown table."""
    return markdown_table(["key", "default", "meaning"], [_row(each) for each in options()])


def _row(each: Option) -> list[str]:
    default = f"{each.default:g}" if each.kind is float else str(each.default).lower() or "empty"
    missing = not all(choice in each.text for choice in each.choices)
    spelled = f": {', '.join(f'`{c}`' for c in each.choices)}" if missing else ""
    return [f"`{each.key}`", default, each.text + spelled]


def project_table() -> str:
    """Return the defaults as Flower's table."""
    # Numbers, strings and booleans are spelled as in JSON.
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in RunConfig().as_dict().items())
    return _TABLE + "".join(lines)


if __name__ == "__main__":
    head, _, _ = PROJECT.read_text(encoding="utf-8").partition(_TABLE)
    PROJECT.write_text(head + project_table(), encoding="utf-8")
    fill(PAGE, {"options": table()})
