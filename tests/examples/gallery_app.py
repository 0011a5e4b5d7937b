"""A project of the gallery as the tests' engine plays it: GALLERY_OUT has its copy, and gets the notes."""

import os
from pathlib import Path

from examples.common.engine import prepared

OUT = Path(os.environ["GALLERY_OUT"])
PACES = tuple(float(pace) for pace in os.environ["GALLERY_PACES"].split(","))

server_app, client_app = prepared(OUT / "app", OUT, PACES)
