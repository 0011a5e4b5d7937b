"""Puts the pages of the top level into the site and makes their links, and links out of docs/, fit.

README.md is the first page; nothing is written twice. Links to files that are no pages (code, scripts) become
plain text, because the site does not carry those files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[2]
_TOP_PAGES = {"README.md": "index.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
}
# A picture keeps its mark; `(?!...)` leaves addresses and anchors within a page alone.
_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the top-level pages as if they lay in docs/."""
    for source, target in _TOP_PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=_fit(text, _ROOT)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make the links of a page in docs/ fit."""
    return markdown if page.file.src_uri in _TOP_PAGES.values() else _fit(markdown, _ROOT / "docs")


def _fit(text: str, folder: Path) -> str:
    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, hash_mark, anchor = target.partition("#")
        where = (folder / path).resolve()
        if where.parent == _ROOT and where.name in _TOP_PAGES:
            return f"{mark}[{words}]({_TOP_PAGES[where.name]}{hash_mark}{anchor})"
        if not where.exists():
            return found[0]  # strict mode reports it
        inside = where.is_relative_to(_ROOT / "docs") and where.is_file()
        if not inside:
            return words
        return f"{mark}[{words}]({where.relative_to(_ROOT / 'docs').as_posix()}{hash_mark}{anchor})"

    return _LINK.sub(link, text)
