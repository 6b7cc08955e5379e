"""The demo's console answers the questions of users, by links from its first page; tests/console tests each page."""

import re
import signal
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode, urljoin, urlsplit

import pytest

from localup.apply import wait_until
from tests.localup.demo.demo_process import demo_starter, read_until
from tests.localup.demo.test_user_jobs import DemoUser


class Visitor:
    """A user that signs in and then only follows links."""

    def __init__(self, url: str, token: str) -> None:
        self._host = urlsplit(url).netloc
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": url.rstrip("/")}
        status, answer, _ = self._request("POST", "/login", urlencode({"token": token, "next": "/"}), headers)
        assert status == 303
        self._cookie = answer["Set-Cookie"].partition(";")[0]
        self.path = "/"

    def page(self) -> str:
        status, _, html = self._request("GET", self.path, None, {"Cookie": self._cookie})
        assert status == 200, (self.path, html[:500])
        return html

    def click(self, *links: str) -> str:
        """Follow links by their texts, from the first page on, and return the text of the last page."""
        self.path = "/"
        for link in links:
            anchors = re.findall(r'<a\b[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', self.page(), re.DOTALL)
            targets = [href for href, text in anchors if _text(text) == link]
            assert targets, f"no link {link!r} on {self.path}: {[_text(text) for _, text in anchors]}"
            self.path = urljoin(self.path, unescape(targets[0]))
        return _text(self.page())

    def wait_for(self, text: str, *links: str) -> str:
        """Return the text of the page behind *links* once it has *text*."""
        self.click(*links)
        return wait_until(lambda: text in (shown := _text(self.page())) and shown, f"{text!r} on {self.path}")

    def _request(self, method, path, body, headers):
        connection = HTTPConnection(self._host, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


@pytest.fixture
def visitor(binaries, tmp_path):
    """Yield a visitor of the demo's console: one job waits, and one of higher priority started before it."""
    with demo_starter(tmp_path) as start:
        process = start("--bare", "--console")
        text = "".join(read_until(process, "progress of your jobs:"))
        # Nothing else reads the further output, which would fill the pipe.
        Thread(target=process.stdout.read, daemon=True).start()
        url, token, kubeconfig = (
            re.search(rf"{label}(\S+)", text).group(1)
            for label in ("web console: ", "token of an operator: ", "KUBECONFIG=")
        )
        user, visitor = DemoUser(Path(kubeconfig), process), Visitor(url, token)
        # All 48 CPUs are used, one job ends soon; then an urgent job starts before one that has waited longer.
        for number in range(5):
            user.submit(f"team-a/hold-{number}", "team-a", pods=4, cpu=2, runtime="900s")
        user.submit("team-a/short", "team-a", pods=4, cpu=2, runtime="20s")
        visitor.wait_for("short")
        user.submit("team-b/waits", "team-b", pods=4, cpu=2, runtime="900s")
        visitor.wait_for("waits", "Workloads")
        user.submit("ops/hotfix", "urgent", pods=4, cpu=2, runtime="900s")
        visitor.wait_for("hotfix")
        yield visitor
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_links_of_the_console_answer_questions_of_users(visitor):
    why = visitor.wait_for("Position 1 of 1", "Workloads", "waits")
    assert "it requests 8 cpu" in why
    visitor.wait_for("What else changes?", "Workloads", "waits")
    assert "Admit" in visitor.wait_for("Decisions of the next cycle", "Workloads", "waits", "What else changes?")
    users = visitor.click("team-a", "Who uses it")
    assert all(f"hold-{number}" in users for number in range(5))
    assert "waits" not in users
    # All CPUs are in use and reclaim is off, so that a larger share starts nothing earlier.
    visitor.wait_for("No decision changes.", "team-b", "What if its weight were 6?")
    first = visitor.wait_for("(O1)", "Workloads", "waits", "Why first?")
    assert "The priority of queue urgent, 100, is higher than that of the other's queue, 0 (O1)." in first
