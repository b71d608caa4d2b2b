"""Ray Serve in front of daemons: one deployment whose replicas run a daemon each, on a GPU of their own, as many as the queue asks for.

    serve run ray_serve:app        or        python3 ray_serve.py

Ray places replicas on the cluster's GPUs (num_gpus=1 sets CUDA_VISIBLE_DEVICES for each), its router picks the replica with fewer
requests of two, its autoscaler goes by how many each has under way. A replica is a thin proxy of the daemon's Unix socket, which
asks for no key; what Ray's own HTTP asks for is yours to put in front. What the environment holds, beside the daemon's options
by its own names (SLUICE_MODEL and all others: so these have another beginning):

    SERVE_DAEMON      sluiced                 SERVE_REPLICAS     so many, or LEAST-MOST for as many as the queue asks for
    SERVE_OPTIONS     options of the daemon   SERVE_GPUS         of a replica: 1, or 0 for the CPU device
"""
import asyncio
import os
import shlex
import shutil
import signal
import tempfile

import httpx
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

PATIENCE_S = 600  # to load a model
HANDED_ON = ("content-type", "x-request-id")
HANDED_BACK = ("content-type", "x-request-id", "retry-after", "retry-after-ms")
LEAST, _, MOST = os.environ.get("SERVE_REPLICAS", "1").partition("-")
SCALE = {"autoscaling_config": {"min_replicas": int(LEAST), "max_replicas": int(MOST), "target_ongoing_requests": 32}} if MOST else {
    "num_replicas": int(LEAST)}


@serve.deployment(
    ray_actor_options={"num_gpus": float(os.environ.get("SERVE_GPUS", "1"))},
    max_ongoing_requests=256,
    health_check_period_s=2,
    health_check_timeout_s=5,
    graceful_shutdown_wait_loop_s=1,
    graceful_shutdown_timeout_s=60,
    **SCALE,
)
class Sluice:
    async def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sluice-")
        command = [os.environ.get("SERVE_DAEMON", "sluiced"), "--socket", f"{self.folder}/sluice.sock", "--http", f"unix:{self.folder}/http.sock",
                   *shlex.split(os.environ.get("SERVE_OPTIONS", ""))]
        # It ends with this process, however that ends.
        self.daemon = await asyncio.create_subprocess_exec("setpriv", "--pdeathsig", "TERM", *command)
        self.ending = False
        self.watch = asyncio.create_task(self.go_with_it())
        self.client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=f"{self.folder}/http.sock"), base_url="http://localhost",
                                        timeout=None)
        for _ in range(PATIENCE_S * 10):
            if await self.answers("/readyz"):
                return
            await asyncio.sleep(0.1)
        raise RuntimeError("sluiced is not ready")

    async def answers(self, path):
        try:
            return (await self.client.get(path, timeout=4)).status_code == 200
        except httpx.HTTPError:
            return False

    async def go_with_it(self):
        """A replica without its daemon would answer every request with an error, and get the more for being quick."""
        code = await self.daemon.wait()
        if not self.ending:
            print(f"sluiced ended with {code}", flush=True)
            os._exit(1)

    async def check_health(self):
        """Ray replaces a replica that fails this: one that is stuck, not one that is busy."""
        if not await self.answers("/livez"):
            raise RuntimeError("the daemon is stuck")

    async def __call__(self, request: Request):
        headers = {name: request.headers[name] for name in HANDED_ON if name in request.headers}
        asked = self.client.build_request(request.method, request.url.path, content=await request.body(), headers=headers)
        try:
            answer = await self.client.send(asked, stream=True)
        except httpx.HTTPError as error:
            return JSONResponse({"error": {"message": f"the daemon is gone: {error}", "type": "server_error", "code": "io"}}, 503)
        back = {name: answer.headers[name] for name in HANDED_BACK if name in answer.headers}
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingResponse(self.pieces(answer), answer.status_code, back)
        try:
            body = await answer.aread()
        except httpx.HTTPError as error:
            return JSONResponse({"error": {"message": f"the daemon is gone: {error}", "type": "server_error", "code": "io"}}, 503)
        finally:
            await answer.aclose()
        return Response(body, answer.status_code, back)

    async def pieces(self, answer):
        """As they come; a client that goes closes this, which closes the daemon's connection, which cancels the request."""
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await answer.aclose()

    async def __del__(self):
        self.ending = True
        if self.daemon.returncode is None:
            self.daemon.send_signal(signal.SIGTERM)
            await self.daemon.wait()
        await self.client.aclose()
        shutil.rmtree(self.folder, ignore_errors=True)


app = Sluice.bind()

if __name__ == "__main__":
    serve.start(http_options={"host": "0.0.0.0", "port": 8000})
    serve.run(app, blocking=True)
