"""What a malicious learner could send: real Flower objects, bent at random but by a seeded generator."""

import io
import logging
import math
import pickle
import zipfile

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, GetPropertiesRes, Parameters, Status, ndarrays_to_parameters
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from flwr_mel import wire

MODEL = {"a": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "b": np.arange(4.0)}
COSTS = dict(zip(wire.COEFFICIENTS, (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1), strict=True))
EVIL = "../../tmp/flwr_mel_evil"
STRINGS = (
    "", "a", "b", "c", "loss", "num-examples", "arrays", "metrics", "mel", "config", "1", "2", "3", EVIL,
    "/etc/passwd", "x" * 5000,
    "\x1b[2J\x1b]0;owned\x07", "a\nERROR: forged line", "<script>alert(1)</script>",
    "\u202ereversed", "\ud800", "%s%n", "[red]x[/red]", "\u0661", "a\x00b",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 5, 30, 2.5, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320, 1e15, 1e16, 2**31,
    2**40, 2**40 + 1, 2**53, 2**63 - 1, -(2**63), 10**400, 10**5000, 1e-15, 1e9, 1e18, 0.1, 100,
)  # fmt: skip
DTYPES = ("<f4", "<f8", ">f4", ">f8", "<f2", "<i4", "<i8", "|u1", "|b1", "<c8", "<U3", "|S5", "<M8[s]")
DESCRS = (
    "<f4", "<f8", "|O", "O", "|S0", "<U0", "<f3", "<f16", "|V8", "<f4,<f4", "[('x', '<f4')]", "<f999999999",
    "<M8[Y]", "<M8[99]", ">i8", "\u0661", "<f-4",
)  # fmt: skip
SHAPES = (
    "(2, 3)", "(4,)", "()", "(100000000000,)", "(-1,)", "(2, -3)", "(4294967296, 4294967296)",
    "(0, 99999999999)", "(4)", "(02,)", "(2 3)", "(2,3)", "(2, 3, )", "(4, , )", "(,)", "(6,\n)",
    "(True,)", "(2L, 3L)", "(" + "1, " * 70 + ")", "(" + "9" * 30 + ",)", "[2, 3]", "(2.0, 3)", "(" * 300,
    "-" * 900 + "1", "(__import__('os').abort(),)",
)  # fmt: skip


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def pick(rng, options):
    return options[int(rng.integers(len(options)))]


def npy_claiming(descr, shape, data, order="False", version=b"\x01\x00"):
    """Write a header of our choice before the data."""
    quoted = descr if descr.startswith("[") else f"'{descr}'"
    text = f"{{'descr': {quoted}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + length + text + data


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy(np.zeros(200_000)))
    return buffer.getvalue()


class Exploit:
    def __reduce__(self):
        return (open, (EVIL, "w"))


PICKLES = (pickle.dumps(Exploit()), npy_claiming("|O", "(1,)", pickle.dumps([Exploit()])))
ARCHIVE = zipped()


def evil_bytes(rng, honest):
    """Bytes in the place of an array."""
    data = bytearray(honest)
    match int(rng.integers(9)):
        case 0:
            for _ in range(int(rng.integers(1, 6))):
                data[int(rng.integers(len(data)))] = int(rng.integers(256))
        case 1:
            data = data[: int(rng.integers(len(data)))]
        case 2:
            data += rng.bytes(int(rng.integers(1, 300)))
        case 3:
            # Only the header.
            for _ in range(int(rng.integers(1, 4))):
                data[int(rng.integers(min(len(data), 80)))] = int(rng.integers(32, 127))
        case 4:
            version = pick(rng, (b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
            order = pick(rng, ("True", "False", "1"))
            return npy_claiming(pick(rng, DESCRS), pick(rng, SHAPES), rng.bytes(24), order, version)
        case 5:
            return pick(rng, PICKLES)
        case 6:
            return ARCHIVE if rng.random() < 0.5 else rng.bytes(int(rng.integers(200)))
        case 7:
            shape = pick(rng, ((2, 3), (4,), (3, 2), (6,), (), (2, 3, 1), (0,)))
            array = np.zeros(shape, pick(rng, DTYPES))
            if array.dtype.kind in "fiu" and array.size:
                with np.errstate(all="ignore"):
                    most = 7 if array.dtype.kind == "f" else 2
                    array.flat[0] = pick(rng, (1, 100, math.nan, math.inf, 1e38, 1e15, 1e16)[:most])
            return npy(np.asfortranarray(array) if rng.random() < 0.3 else array)
        case 8:
            return npy(np.full((2, 3), pick(rng, (math.nan, -math.inf, 3e38, 1e15, -1e16, 7)), np.float32))
    return bytes(data)


def evil_value(rng, *, text=True):
    kind = int(rng.integers(6 if text else 3))
    if kind < 2:
        return pick(rng, NUMBERS)
    if kind == 2:
        return [pick(rng, NUMBERS)] * int(rng.integers(4)) if rng.random() < 0.99 else [1.0] * 100_001
    if kind == 3:
        return pick(rng, STRINGS)
    return rng.bytes(int(rng.integers(9))) if kind == 4 else bool(rng.integers(2))


def metric_name(rng):
    """One that others report, as often as not."""
    return pick(rng, ("loss", "parts", "num-examples") if rng.random() < 0.5 else STRINGS)


def evil_words(rng, base=None):
    """What a learner says of itself."""
    words = dict(base if base is not None else {wire.LEARNER: "3", wire.MAX_SAMPLES: 100, **COSTS})
    keys = (*wire.CAPABILITY_KEYS, wire.TRAIN_SECONDS, wire.TRAIN_JOULES, wire.PROBE, wire.EPOCHS)
    for _ in range(int(rng.integers(1, 5))):
        key = pick(rng, keys)
        if rng.random() < 0.2:
            words.pop(key, None)
        else:
            words[key] = evil_value(rng)
    return words


def config(words):
    """Flower refuses some values itself: those cannot be sent."""
    record = ConfigRecord()
    for key, value in words.items():
        try:
            record[key] = value
        except (TypeError, ValueError):
            continue
    return record


def honest_content(shift=0.5, samples=20):
    arrays = {key: Array(value + value.dtype.type(shift)) for key, value in MODEL.items()}
    metrics = {"num-examples": samples, "loss": 1.0 + shift, "parts": [shift, 2.0]}
    return RecordDict(
        {
            "arrays": ArrayRecord(arrays),
            "metrics": MetricRecord(metrics),
            wire.RECORD: ConfigRecord({wire.TRAIN_SECONDS: 1.0, wire.MAX_SAMPLES: 100, **COSTS}),
        }
    )


def evil_content(rng):
    """A whole reply of the Message API."""
    content = honest_content(0.25)
    for _ in range(int(rng.integers(1, 4))):
        match int(rng.integers(12)):
            case 0 | 1 | 2:
                key = pick(rng, ("a", "b"))
                data = evil_bytes(rng, npy(MODEL[key]))
                kind = "numpy.ndarray" if rng.random() < 0.9 else pick(rng, STRINGS)
                record = ArrayRecord(dict(content.array_records.get("arrays", {})))
                record[key] = Array(pick(rng, ("float32", "object", "x" * 99)), (10**9, -1), kind, data)
                content["arrays"] = record
            case 3:
                record = ArrayRecord(dict(content.array_records.get("arrays", {})))
                for _ in range(int(rng.integers(1, 4))):
                    record[pick(rng, STRINGS)] = Array(np.zeros(2))
                content["arrays"] = record
            case 4:
                for _ in range(int(rng.integers(1, 4))):
                    content[pick(rng, STRINGS)] = pick(
                        rng, (ArrayRecord(), MetricRecord({"x": 1}), ConfigRecord({"x": 1}))
                    )
            case 5 | 6:
                metrics = MetricRecord(dict(content.metric_records.get("metrics", {})))
                for _ in range(int(rng.integers(1, 4))):
                    try:
                        metrics[metric_name(rng)] = evil_value(rng, text=False)
                    except (TypeError, ValueError):
                        continue
                content["metrics"] = metrics
            case 7:
                content["metrics"] = MetricRecord({} if rng.random() < 0.5 else {"num-examples": 3})
            case 8:
                name = pick(rng, ("arrays", "metrics", wire.RECORD))
                if name in content:
                    content[pick(rng, STRINGS)] = content.pop(name)
            case 9 | 10:
                content[wire.RECORD] = config(evil_words(rng, content.config_records.get(wire.RECORD)))
            case 11:
                many = range(int(rng.integers(50, 200)))
                content = RecordDict({**content, **{f"r{i}": ConfigRecord({"x": i}) for i in many}})
    return content


def honest_result(shift=0.5, samples=20):
    arrays = [value + value.dtype.type(shift) for value in MODEL.values()]
    said = {"loss": 1.0 + shift, "tag": "v1", wire.TRAIN_SECONDS: 1.0, wire.MAX_SAMPLES: 100, **COSTS}
    return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(arrays), samples, said)


def evil_result(rng):
    """A whole result of the classic API."""
    result = honest_result(0.25)
    tensors = list(result.parameters.tensors)
    for _ in range(int(rng.integers(1, 4))):
        match int(rng.integers(7)):
            case 0 | 1 | 2:
                if tensors:
                    i = int(rng.integers(len(tensors)))
                    tensors[i] = evil_bytes(rng, npy(list(MODEL.values())[i % 2]))
            case 3:
                tensors = pick(rng, ([], tensors[:1], tensors * 2, tensors * 500, tensors[::-1]))
            case 4:
                result.num_examples = pick(rng, NUMBERS)
            case 5:
                for _ in range(int(rng.integers(1, 4))):
                    value = evil_value(rng)
                    result.metrics[metric_name(rng)] = 1 if isinstance(value, list) else value
            case 6:
                said = {key: x for key, x in evil_words(rng).items() if not isinstance(x, list)}
                result.metrics = {**result.metrics, **said}
    result.parameters = Parameters(tensors, pick(rng, ("numpy.ndarray", "", "pickle")))
    return result


# --- the way to the learners, without an engine ---------------------------------------------------------


def outside_runtime(monkeypatch):
    """Let Flower's messages be made outside its runtime, and keep the logs quiet."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    for name in ("flwr", "flwr_mel"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.CRITICAL)
        monkeypatch.setattr(logging.getLogger(name), "_cache", {})


def honest_words(k):
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: 100, **COSTS}


class OneRound(Grid):
    """Answers the probes; the tests answer the tasks."""

    def __init__(self, words):
        self.words, self.waiting = words, {}

    def set_run(self, run): ...

    @property
    def run(self):
        return None

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.words)

    def get_nodes(self):
        return []

    def push_messages(self, messages):
        for message in messages:
            name = f"probe-{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = name
            content = RecordDict({wire.RECORD: config(self.words[message.metadata.dst_node_id])})
            self.waiting[name] = Message(content, reply_to=message)
        return list(self.waiting)

    def pull_messages(self, message_ids):
        return [self.waiting.pop(i) for i in message_ids if i in self.waiting]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


class Client(ClientProxy):
    """A client that says what it can do; the tests make its results."""

    def __init__(self, node, words):
        super().__init__(str(node))
        self.words = words

    def get_properties(self, ins, timeout, group_id):
        return GetPropertiesRes(Status(Code.OK, ""), self.words)

    def get_parameters(self, ins, timeout, group_id):
        raise NotImplementedError

    def fit(self, ins, timeout, group_id):
        raise NotImplementedError

    evaluate = reconnect = fit
