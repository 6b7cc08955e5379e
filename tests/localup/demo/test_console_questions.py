"""Six questions of users, answered by following links from the demo's console, as with clicks in a browser."""

import re
import signal
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode, urljoin, urlsplit

import pytest

from localup.apply import wait_until
from tests.localup.demo.demo_process import demo_starter, read_until
from tests.localup.demo.test_user_jobs import DemoUser

pytestmark = [pytest.mark.integration, pytest.mark.process]

#: The controller writes learned run times at most once a minute, and the console reads them every ten seconds.
_FORECAST_SECONDS = 150


class Page(HTMLParser):
    """The links of a page, and its text by section."""

    def __init__(self, url: str, html: str) -> None:
        super().__init__()
        self.url = url
        self.sections: dict[str, str] = {}
        self.links: list[tuple[str, str, str]] = []
        """Section, text and address."""
        self._section = ""
        self._link: tuple[str, list[str]] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "section":
            self._section = values.get("id", "")
        if tag == "a":
            self._link = values.get("href", ""), []

    def handle_endtag(self, tag):
        if tag == "a" and self._link is not None:
            href, text = self._link
            self.links.append((self._section, " ".join("".join(text).split()), href))
            self._link = None
        if tag == "section":
            self._section = ""

    def handle_data(self, data):
        self.sections[self._section] = f"{self.sections.get(self._section, '')} {data.strip()}".strip()
        if self._link is not None:
            self._link[1].append(data)


@dataclass
class Visitor:
    """A user that signs in and then only follows links."""

    url: str
    token: str
    cookie: str = ""
    path: list[str] = field(default_factory=list)

    def sign_in(self) -> Page:
        body = urlencode({"token": self.token, "next": "/"})
        origin = self.url.rstrip("/")
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin}
        status, answer, _ = self._request("POST", "/login", body, headers)
        assert status == 303
        self.cookie = answer["Set-Cookie"].partition(";")[0]
        return self.get("/")

    def get(self, path: str) -> Page:
        status, _, html = self._request("GET", path, None, {"Cookie": self.cookie})
        assert status == 200, (path, html[:500])
        return Page(path, html)

    def click(self, page: Page, text: str, section: str | None = None) -> Page:
        """Follow the first link with *text*."""
        for place, words, href in page.links:
            if words == text and section in {None, place}:
                return self.get(urljoin(page.url, href))
        raise AssertionError(f"no link {text!r} on {page.url}: {[link[1] for link in page.links]}")

    def reload_until(self, page: Page, section: str, text: str, *, seconds: float = 60) -> Page:
        """Reload the page until a section has *text*."""

        def found():
            again = self.get(page.url)
            return again if text in again.sections.get(section, "") else None

        return wait_until(found, f"{text!r} in {section} of {page.url}", seconds=seconds)

    def _request(self, method, path, body, headers):
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def demo(binaries, tmp_path_factory):
    """Yield a visitor of the demo's console, and a user that submits jobs."""
    with demo_starter(tmp_path_factory.mktemp("console")) as start:
        process = start("--bare", "--console")
        text = "".join(read_until(process, "progress of your jobs:"))
        # Nothing else reads the further output, which would fill the pipe.
        Thread(target=process.stdout.read, daemon=True).start()
        url = re.search(r"web console: (\S+)", text).group(1)
        token = re.search(r"token of an operator: (\S+)", text).group(1)
        kubeconfig = re.search(r"KUBECONFIG=(\S+)", text).group(1)
        user = DemoUser(Path(kubeconfig), process)
        # All 48 CPUs are used, one job ends soon; then an urgent job starts before one that has waited longer.
        for number in range(5):
            user.submit(f"team-a/hold-{number}", "team-a", pods=4, cpu=2, runtime="900s")
        user.submit("team-a/short", "team-a", pods=4, cpu=2, runtime="20s")
        visitor = Visitor(url, token)
        home = visitor.sign_in()
        visitor.reload_until(home, "recent", "short")
        user.submit("team-b/waits", "team-b", pods=4, cpu=2, runtime="900s")
        visitor.reload_until(visitor.click(home, "Workloads"), "list", "waits")
        user.submit("ops/hotfix", "urgent", pods=4, cpu=2, runtime="900s")
        visitor.reload_until(home, "recent", "hotfix")
        yield visitor
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.fixture
def waiting(demo):
    """Return the page of the waiting job, reached by links."""
    return demo.click(demo.click(demo.sign_in(), "Workloads"), "waits")


def test_why_does_this_job_wait(demo, waiting):
    why = waiting.sections["why"]
    assert "it requests 8 cpu" in why
    assert "Position 1 of 1" in why


def test_when_does_it_start(demo, waiting):
    page = demo.reload_until(waiting, "start", "≈", seconds=_FORECAST_SECONDS)
    assert re.search(r"≈ .*[0-9]{2}:[0-9]{2} UTC", page.sections["start"])


def test_what_would_admit_it(demo, waiting):
    page = demo.reload_until(waiting, "changes", "What else changes?")
    plan = demo.reload_until(demo.click(page, "What else changes?", "changes"), "decisions", "waits")
    assert "Admit" in plan.sections["decisions"]


def test_who_uses_the_share_of_team_a(demo):
    queue = demo.click(demo.sign_in(), "team-a", "queues")
    assert "team-a" in queue.sections["usage"]
    users = demo.click(queue, "Who uses it")
    assert all(f"hold-{number}" in users.sections["list"] for number in range(5))
    assert "waits" not in users.sections["list"]


def test_what_changes_if_the_weight_of_team_b_doubles(demo):
    queue = demo.click(demo.sign_in(), "team-b", "queues")
    plan = demo.click(queue, "What if its weight were 6?")
    plan = demo.reload_until(plan, "decisions", "Decisions of the next cycle")
    # All CPUs are in use and reclaim is off, so that nothing starts earlier.
    assert "No decision changes." in plan.sections["decisions"]


def test_why_did_that_job_start_first_at_that_time(demo, waiting):
    assert "hotfix" in waiting.sections["before"]
    moment = demo.reload_until(demo.click(waiting, "Why first?", "before"), "why", "O1")
    assert (
        "The priority of queue urgent, 100, is higher than that of the other's queue, 0 (O1)." in moment.sections["why"]
    )
    assert "Job team-b/waits could not start after that" in moment.sections["why"]
    assert "hotfix" in moment.sections["decisions"]
    assert demo.click(moment, "waits", "order").sections["why"]
