"""``python -m flwr_mel.cli``, the same as ``flwr-mel``."""

from flwr_mel.cli import main

main()
