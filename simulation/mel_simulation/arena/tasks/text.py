"""Shakespeare: the next character of a speech, by a small LSTM. Speakers are the natural groups."""

from __future__ import annotations

import gzip
import re
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import torch

from flwr_mel._files import atomically
from flwr_mel._text import message
from mel_simulation.arena.tasks.task import TEST_SAMPLES, TorchTask, first_of
from mel_simulation.scenario.data import TIMEOUT_S, DataError, cache_dir

_NAME = "tinyshakespeare.txt"
_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
_LENGTH = 30
_BATCH, _LEARNING_RATE = 32, 3.0
_SPEAKER = re.compile(r"^([A-Z][A-Za-z' ]{1,40}):$", re.MULTILINE)


class NextCharacter(torch.nn.Module):
    """Embedding, LSTM, linear: about 30 thousand parameters.

    LSTM as in LEAF; torch trains it on CPUs by one kernel of oneDNN, a GRU by hundreds of small ones.
    """

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, 16)
        self.memory = torch.nn.LSTM(16, 64, batch_first=True)
        self.out = torch.nn.Linear(64, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character after every one of x."""
        return self.out(self.memory(self.embedding(x))[0])  # type: ignore[no-any-return]


def shakespeare(data_dir: str, samples: int) -> TorchTask:
    """Return the task: windows of 30 characters, a tenth of every speaker's for the test.

    Parameters
    ----------
    data_dir : str
        Directory that holds ``tinyshakespeare.txt``, plain or gzip; empty: the cache, or a download into it.
    samples : int
        Training windows that are used; 0: all.
    """
    text = _read(Path(data_dir) if data_dir else None)
    alphabet = sorted(set(text))
    codes = {c: i for i, c in enumerate(alphabet)}
    windows, speakers = _windows(text)
    coded = torch.tensor([[codes[c] for c in window] for window in windows])
    kept = np.arange(len(windows)) % 10 == 9
    test, train = np.flatnonzero(kept), np.flatnonzero(~kept)
    test = test[first_of(len(test), TEST_SAMPLES // 4)]  # a window has many characters
    train = train[first_of(len(train), samples)]
    training, judged = ((coded[rows, :-1], coded[rows, 1:]) for rows in (train, test))
    build = partial(NextCharacter, len(alphabet))
    return TorchTask(build, training, judged, speakers[train], _BATCH, _LEARNING_RATE)


def _windows(text: str) -> tuple[list[str], np.ndarray]:
    """Cut all speeches of each speaker into windows; return them with the speakers' numbers."""
    parts = _SPEAKER.split(text)
    said: dict[str, str] = {}
    for name, speech in zip(parts[1::2], parts[2::2], strict=True):
        said[name] = said.get(name, "") + speech
    windows, speakers = [], []
    for number, speeches in enumerate(said.values()):
        for begin in range(0, len(speeches) - _LENGTH, _LENGTH):
            windows.append(speeches[begin : begin + _LENGTH + 1])
            speakers.append(number)
    return windows, np.array(speakers)


def _read(directory: Path | None) -> str:
    kept = (directory or cache_dir()) / _NAME
    zipped = kept.with_suffix(".txt.gz")
    try:
        if zipped.exists():
            return gzip.decompress(zipped.read_bytes()).decode()
        if directory is None and not kept.exists():
            with urlopen(_URL, timeout=TIMEOUT_S) as answer:
                content = answer.read().decode()
            atomically(kept, lambda file: file.write(content))
        return kept.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"shakespeare is not available: {message(error).rstrip('.')}. Put {_NAME} (plain or .gz) into a "
            "directory and give it, or run once with internet access."
        ) from error
