"""Flower's Grid and ClientProxy without a network, for tests and benchmarks."""

from uuid import uuid4

from flwr.app import Context, RecordDict
from flwr.common import Code, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid


class InProcessGrid(Grid):
    """Calls a client app where others would send messages."""

    run = None

    def __init__(self, app, clients):
        self.app, self.replies = app, {}
        self.contexts = {
            k + 1: Context(1, k + 1, {"partition-id": k, "num-partitions": clients}, RecordDict(), {})
            for k in range(clients)
        }

    def set_run(self, run):
        pass

    def create_message(self, *given, **more):
        raise NotImplementedError  # messages are made by their own class

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        """Let every client answer at once."""
        sent = []
        for one in messages:
            one.metadata.__dict__["_message_id"] = str(uuid4())  # as Flower's own grids do
            self.replies[one.metadata.message_id] = self.app(one, self.contexts[one.metadata.dst_node_id])
            sent.append(one.metadata.message_id)
        return sent

    def pull_messages(self, message_ids):
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return list(self.pull_messages(self.push_messages(messages)))


class EchoClient(ClientProxy):
    """A classic client that sends the model back."""

    def fit(self, ins, timeout, group_id):
        parameters = Parameters(list(ins.parameters.tensors), ins.parameters.tensor_type)
        return FitRes(Status(Code.OK, ""), parameters, 10, {})

    def get_properties(self, ins, timeout, group_id):
        raise NotImplementedError

    evaluate = reconnect = get_parameters = get_properties
