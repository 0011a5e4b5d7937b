"""Stands in for an agent of Ray's that nobody asks anything: ``python idle_agent.py PORT_FILE ...``.

The raylet starts no worker before its agents have said which ports they listen at, and ends with them. Ray's
own import Ray and a web server first.
"""

import os
import sys
import time
from pathlib import Path

#: As Ray's agents say it of a service that is not there.
_NONE = "-1"


def main() -> None:
    """Say that there are no ports; wait for the raylet's end."""
    for name in sys.argv[1:]:
        if not name.startswith("-"):  # the raylet adds options for the agent
            draft = Path(f"{name}.new")
            draft.write_text(_NONE, encoding="ascii")
            draft.replace(name)
    while str(os.getppid()) == os.environ["RAY_RAYLET_PID"]:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
