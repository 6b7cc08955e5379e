"""The pages in a real browser: every page at three widths, light and dark, with a keyboard, and without JavaScript.

They need Debian's Chromium (`apt-get install chromium`, or the program that CHROMIUM names), and Playwright and
axe-core, which are among the locked requirements of development; without one of them they are skipped with that reason.
SCREENSHOTS names a folder for pictures of the pages.
"""

import asyncio
import os
import re
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from controller.engine.state.hierarchy import Queue, QueueName
from tests.cli.manifests import queue
from tests.console.consoles import (
    NOW,
    OPERATOR,
    RunningConsole,
    add_history,
    cluster,
    console_of,
    model_of,
    pending_job,
)
from tests.history.logs import Log, job
from tests.history.logs import cluster as logged_cluster
from tests.waiting import poll

playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed: run `make setup`")
axe = pytest.importorskip("axe_core_python.async_playwright", reason="axe-core is not installed: run `make setup`")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = os.environ.get("SCREENSHOTS")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
]

PAGES = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/team-a",
    "workloads": "/workloads",
    "workload": "/workloads/one/Job/train-7",
    "hyperjobs": "/hyperjobs",
    "clusters": "/clusters",
    "cluster": "/clusters/member1",
    "what-if": "/what-if",
    "decisions": "/decisions?action=Any",
    "moment": "/moment?at=2026-09-21T14:13:28&first=uid-eval-5&second=uid-train-6",
}
WIDTHS = (360, 820, 1440)


@pytest.fixture
def model(tmp_path):
    queues = [
        queue("research", weight=2),
        queue("team-a", parent="research"),
        queue("team-b", parent="research", weight=3),
    ]
    jobs = [pending_job("one", f"train-{number}", "team-a", cpu=3) for number in range(30)]
    jobs += [pending_job("two", f"eval-{number}", "team-b", cpu=2) for number in range(20)]
    model = model_of(tmp_path, *queues, cluster("member1"), cluster("member2", cpu=16), *jobs)
    add_history(model, history(tmp_path / "log").path)
    return model


def history(path) -> Log:
    """Return a log of some plans of the same queues, in which team-b overtakes team-a."""
    log = Log(path, now=NOW)
    names = {"research": ("root", 2), "team-a": ("research", 1), "team-b": ("research", 3)}
    queues = [Queue(QueueName(name), QueueName(of), weight=weight) for name, (of, weight) in names.items()]
    log.world(queues, [logged_cluster("member1", 4), logged_cluster("member2", 16)])
    log.submit(*(job(f"train-{number}", "team-a", cpu=3, created_at=NOW + number) for number in range(10)))
    for number in range(6):
        log.plan()
        if number < 3:
            submitted = range(number * 3, number * 3 + 3)
            log.submit(
                *(
                    job(f"eval-{eval_number}", "team-b", namespace="two", created_at=NOW + 100 + eval_number)
                    for eval_number in submitted
                )
            )
        log.remove(f"uid-train-{number}")
        log.plan()
    log.write()
    return log


@asynccontextmanager
async def browser_on(model, **how):
    """Yield a browser on a console of *model*, as `browser_of` does."""
    async with console_of(model, {"op": OPERATOR}) as console, browser_of(console, **how) as opened:
        yield opened


@asynccontextmanager
async def browser_of(console: RunningConsole, *, width: int = 1440, scheme: str = "light", script: bool = True):
    """Yield a page of the browser, signed in, the address of the console, and what went wrong in the page."""
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        page = await context.new_page()
        page.set_default_timeout(90_000)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        url = str(console.client.make_url("")).rstrip("/")
        await page.goto(f"{url}/login?next=/queues")
        await page.fill("#token", "op")
        await page.press("#token", "Enter")
        await page.wait_for_url(f"{url}/queues")
        try:
            yield page, url, problems
        finally:
            await browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_pages_fit_their_window_without_errors(model, width, scheme):
    async with browser_on(model, width=width, scheme=scheme) as (page, url, problems):
        for name, path in PAGES.items():
            await page.goto(url + path)
            if name == "moment":
                await page.locator("#order").wait_for()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert await page.locator("h1").count() == 1, name
            if SCREENSHOTS:
                await page.screenshot(path=Path(SCREENSHOTS) / f"{name}-{width}-{scheme}.png")
        assert not problems


async def test_pages_with_the_longest_names_fit_their_window(tmp_path):
    upper, lower, job_name, missing = ("x" * 252 + letter for letter in "abcd")
    queues = [queue(upper), queue(lower, parent=upper)]
    model = model_of(tmp_path, *queues, cluster(upper), pending_job("one", job_name, lower))
    paths = [f"/queues?below={upper}", f"/queues/{lower}", f"/workloads/one/Job/{job_name}", f"/clusters/{upper}"]
    async with browser_on(model, width=360) as (page, url, _):
        for path in (*paths, "/", "/workloads", "/clusters", f"/queues/{missing}", f"/what-if?change={missing}"):
            await page.goto(url + path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_have_no_accessibility_findings(model, scheme):
    async with browser_on(model, scheme=scheme) as (page, url, _):
        for name, path in PAGES.items():
            await page.goto(url + path)
            # The script is added by the browser's debugger, which the Content-Security-Policy does not concern.
            violations = (await axe.Axe().run(page))["violations"]
            assert not [(violation["id"], violation["nodes"][0]["html"]) for violation in violations], name


async def test_page_changes_without_being_loaded_again(model):
    async with browser_on(model) as (page, url, problems):
        await page.goto(f"{url}/queues/team-a")
        await page.evaluate("window.loadedOnce = true")
        gone = next(binding for binding in model.store.bindings if binding.template.name == "train-7")
        await page.locator("text=train-7").first.wait_for()
        model.store.bindings.remove(gone)
        model.refresh(model.snapshot.now + 1000)
        await page.locator('a[href="/workloads/one/Job/train-7"]').first.wait_for(state="detached")
        assert await page.evaluate("window.loadedOnce")
        assert not problems


async def test_page_changes_when_its_form_is_left(model):
    async with browser_on(model) as (page, url, problems):
        await page.goto(f"{url}/workloads?q=train-7")
        time = await page.inner_text("#time")
        await page.focus("input[name=q]")
        other = await page.context.new_page()
        await other.goto(page.url)
        gone = next(binding for binding in model.store.bindings if binding.template.name == "train-7")
        model.store.bindings.remove(gone)
        model.refresh(model.snapshot.now + 60_000)
        link = 'a[href="/workloads/one/Job/train-7"]'
        await other.locator(link).wait_for(state="detached")
        assert await page.locator(link).count() == 1
        assert await page.inner_text("#time") == time
        await page.evaluate("document.activeElement.blur()")
        await page.locator(link).wait_for(state="detached")
        # The time comes after its page.
        for each in (page, other):
            await each.locator("#time", has_not_text=time).wait_for()
        assert await page.inner_text("#time") == await other.inner_text("#time")
        assert not problems


async def test_page_ends_when_its_stream_is_refused(model):
    async with console_of(model, {"op": OPERATOR}) as console, browser_of(console) as (page, url, _):
        await page.clock.install()
        await page.goto(f"{url}/queues/team-a")
        await poll(console.server._streams.total, "a stream")
        # The token expires while the connection is lost.
        console.access.users.clear()
        for connection in list(console.client.server.runner.server.connections):
            connection.transport.abort()
        async with asyncio.timeout(60):
            while "/login" not in page.url:
                await page.clock.run_for(1_000)
                await asyncio.sleep(0.1)


async def test_pages_work_without_javascript(model):
    async with browser_on(model, script=False) as (page, url, _):
        await page.goto(f"{url}/workloads")
        await page.fill("input[name=q]", "eval-1")
        await page.press("input[name=q]", "Enter")
        await page.wait_for_url("**q=eval-1*")
        assert await page.locator("tbody tr").count() == 11
        await page.click("tbody a >> nth=0")
        assert "eval-" in await page.inner_text("h1")


async def test_first_tab_stop_skips_the_navigation(model):
    async with browser_on(model) as (page, url, _):
        await page.goto(f"{url}/")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.keyboard.press("Enter")
        assert await page.evaluate("location.hash") == "#main"


async def test_three_questions_about_a_job_are_answered_by_clicks(model, monkeypatch):
    job = pending_job("one", "train-7", "team-a", cpu=3)
    stored = {**job, "metadata": {**job["metadata"], "uid": "u-7", "resourceVersion": "9"}}

    async def read(_: str) -> bytes:
        return msgspec.json.encode(stored)

    monkeypatch.setattr(model, "read", read)
    async with browser_on(model) as (page, url, _):
        await page.goto(f"{url}/queues/team-a")
        await page.click('a[href="/workloads/one/Job/train-7"]')
        assert "all usable clusters together have 2 left" in await page.inner_text("#why")
        assert "When it starts" in await page.inner_text("#start")
        await page.locator("#changes table").wait_for()
        await page.click("#changes a >> nth=0")
        await page.wait_for_url(re.compile(r"/what-if\?change="))
        assert await page.input_value("#change")
