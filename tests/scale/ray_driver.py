"""A Ray of one node with deploy/scale/ray_serve.py on it: ray_driver.py PORT SCRATCH. A line "upgrade" on standard input replaces all
replicas, one after the other; the end of it ends all. Says what is done, a line each. Exit 77 where Ray itself does not start."""
import os
import socket
import sys
import time

sys.path.insert(0, "deploy/scale")
import ray  # noqa: E402
from ray import serve  # noqa: E402

import ray_serve  # noqa: E402

# Ray gives its own node half a minute to start and its proxies one, which on a machine with other work is too little.
TRIES = 4


def begin(scratch):
    for number in range(TRIES):
        try:
            return ray.init(num_cpus=8, num_gpus=0, include_dashboard=False, _node_ip_address="127.0.0.1",
                            _temp_dir=f"{scratch}/ray{number or ''}", object_store_memory=100 << 20, log_to_driver=False)
        except Exception as error:  # it has no class of its own
            if "timed out during startup" not in str(error) or number + 1 == TRIES:
                raise
            ray.shutdown()
            time.sleep(10)


def patient(call):
    """What has begun when Ray gives up goes on: the same call again waits for that."""
    for number in range(TRIES):
        try:
            return call()
        except TimeoutError:
            if number + 1 == TRIES:
                raise


def listens(port):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def start(port, scratch):
    begin(scratch)
    patient(lambda: serve.start(http_options={"host": "127.0.0.1", "port": port}))
    until = time.monotonic() + 60 * TRIES
    while not listens(port):
        if time.monotonic() > until:
            raise TimeoutError("no proxy listens")
        time.sleep(0.2)


port, scratch = int(sys.argv[1]), sys.argv[2]
try:
    start(port, scratch)
except Exception as error:  # of its node it has no class of its own
    if not isinstance(error, TimeoutError) and "timed out during startup" not in str(error):
        raise
    print(f"SKIPPED scale ray: Ray does not start here: {error}", flush=True)
    ray.shutdown()
    os._exit(77)
patient(lambda: serve.run(ray_serve.app))
print("up", flush=True)
version = 1
for line in sys.stdin:
    version += 1
    actor = {"num_gpus": 0, "runtime_env": {"env_vars": {"SERVE_VERSION": str(version)}}}  # another version: all are replaced
    patient(lambda: serve.run(ray_serve.Sluice.options(ray_actor_options=actor).bind()))
    print("upgraded", flush=True)
serve.shutdown()
ray.shutdown()
os._exit(0)
