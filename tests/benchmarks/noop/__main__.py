"""A handler that reads a review and always says the same, on the webhook's own stack; prints its port."""

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import web

from controller.kube.serving_certificate import Certificate
from webhook.server import listen_tls
from webhook.settings import WebhookSettings

ANSWER = b'{"response":{"uid":"u","allowed":true},"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """Read and say yes."""
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


async def main(folder: Path) -> None:
    """Serve until killed."""
    certificate = Certificate(folder)
    certificate.refresh()
    listener = await listen_tls(answer, WebhookSettings(host="127.0.0.1", port=0), certificate.context)
    print(json.dumps({"port": listener.port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
