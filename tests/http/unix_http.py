"""Requests of scripts to a daemon's Unix socket."""
import http.client
import json
import socket


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def post(socket_path, path, body):
    """The status and the text of the answer."""
    connection = Connection(socket_path)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode("utf-8")  # strict: no stream splits a character


def choices(stream):
    """The first choice of each event of a stream."""
    return [json.loads(line[6:])["choices"][0] for line in stream.splitlines() if line.startswith("data: {")]
