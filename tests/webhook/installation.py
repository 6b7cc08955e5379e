"""Installs the webhook on a real control plane with the documented commands."""

import uuid
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import Any
from urllib.parse import urlsplit

import yaml

from certs.__main__ import main
from localup.api import ApiError
from localup.apply import apply
from tests.commands import run
from tests.webhook.reviews import job_binding

BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/ml/resourcebindings"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ml/jobs"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
_MANIFEST = Path(__file__).parents[2] / "charts" / "volcano-global" / "files" / "webhooks.yaml"
_URL = "https://webhook.invalid"
_KINDS = "['batch.volcano.sh/Job']"


def registration(url: str, *kinds: str) -> list[dict[str, Any]]:
    """Return the chart's webhook configurations for a webhook at *url* that gates *kinds* and Volcano Jobs."""
    text = _MANIFEST.read_text()
    assert _URL in text
    assert _KINDS in text
    gated = ["batch.volcano.sh/Job", *kinds]
    return list(yaml.safe_load_all(text.replace(_URL, url).replace(_KINDS, str(gated))))


def register(plane, port: int, *kinds: str) -> None:
    """Apply the webhook configurations for a webhook on *port*."""
    apply(plane.admin, registration(f"https://127.0.0.1:{port}", *kinds))


def ensure(plane, folder: Path) -> None:
    """Renew certificates that are due and publish the bundle."""
    flags = ["--directory", folder, "--dns", "localhost", "--ip", "127.0.0.1"]
    flags += ["--webhook-configuration", "volcano-global", "--kubeconfig", plane.kubeconfig("volcano-global-certs")]
    result = run(main, "ensure", *flags)
    assert result.returncode == 0, result.stderr


def fresh(new: dict[str, Any]) -> dict[str, Any]:
    """Return *new* with a unique name."""
    new["metadata"] = {"name": f"{new['metadata']['name']}-{uuid.uuid4().hex[:8]}"}
    return new


def is_suspended(karmada, new: dict[str, Any] | None = None) -> bool:
    """Return whether a new binding would be stored suspended."""
    try:
        stored = karmada.create(f"{BINDINGS}?dryRun=All", fresh(new or job_binding()))
    except ApiError:
        return False
    return stored["spec"].get("suspension", {}).get("scheduling") is True


def send(plane, method: str, path: str, body: bytes, *, identity: str, content_type: str = "application/json"):
    """Return status, warnings and body of the API server's answer."""
    address = urlsplit(plane.url)
    context = create_default_context(cadata=plane.ca)
    connection = HTTPSConnection(address.hostname, address.port, timeout=30, context=context)
    headers = {"Authorization": f"Bearer {plane.token(identity)}", "Content-Type": content_type}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    response = answer.status, answer.headers.get_all("Warning") or [], answer.read()
    connection.close()
    return response
