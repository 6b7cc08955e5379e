"""Access reviews of users: their lifetime in the cache, and their limit for each user."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from controller.kube.access_reviews import Access, AnswerCache, Permission, RefusedError, User
from controller.kube.client import Api
from tests.scripted_server import answering, scripted_server
from tests.virtual_time import Clock

TOKENS, REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@asynccontextmanager
async def reviewed(tmp_path, *, known: bool = True, allowed: bool = True):
    """Yield an access whose API server gives these answers, the server, and its clock."""
    clock = Clock()
    async with scripted_server() as server:
        user = {"username": "ann", "groups": ["team"]} if known else {}
        server.says("POST", TOKENS, answering(201, {"status": {"authenticated": known, "user": user}}))
        server.says("POST", REVIEWS, answering(201, {"status": {"allowed": allowed}}))
        async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
            yield Access(api, clock=clock), server, clock


def paths(server) -> list[str]:
    return [path.rpartition("/")[2] for _, path, _ in server.requests]


async def test_permission_is_reviewed_again_after_its_lifetime(tmp_path):
    async with reviewed(tmp_path) as (access, server, clock):
        await access.require("t", "ml", "list")
        await access.require("t", "ml", "list")
        assert paths(server) == ["tokenreviews", "subjectaccessreviews"]
        spec = json.loads(server.bodies[1])["spec"]
        assert (spec["user"], spec["groups"], spec["resourceAttributes"]["namespace"]) == ("ann", ["team"], "ml")
        await access.require("t", "other", "list")
        await access.require("t", "ml", "get")
        assert paths(server).count("subjectaccessreviews") == 3
        clock.now += 31
        await access.require("t", "ml", "list")
        assert len(server.requests) == 6


async def test_invalid_token_is_cached_for_a_short_time(tmp_path):
    async with reviewed(tmp_path, known=False) as (access, server, clock):
        for _ in range(3):
            with pytest.raises(RefusedError) as refused:
                await access.require("t", "ml", "list")
            assert refused.value.status == 401
        assert paths(server) == ["tokenreviews"]
        clock.now += 6
        with pytest.raises(RefusedError):
            await access.require("t", "ml", "list")
        assert len(server.requests) == 2


async def test_user_is_known_until_a_review_refuses_its_token(tmp_path):
    # Its requests are not limited with those of its address while the token is reviewed again.
    async with reviewed(tmp_path) as (access, server, clock):
        assert access.known_user("t") is None
        await access.user("t")
        clock.now += 31
        assert (access.known_user("t").username, len(server.requests)) == ("ann", 1)
        server.says("POST", TOKENS, answering(201, {"status": {"authenticated": False}}))
        assert (await access.user("t"), access.known_user("t")) == (None, None)


async def test_token_that_is_no_text_is_invalid(tmp_path):
    async with reviewed(tmp_path) as (access, server, _):
        with pytest.raises(RefusedError) as refused:
            await access.require(b"\xff".decode(errors="surrogateescape"), "ml", "list")
        assert (refused.value.status, server.requests) == (401, [])


async def test_denied_user_is_refused(tmp_path):
    async with reviewed(tmp_path, allowed=False) as (access, _, _):
        with pytest.raises(RefusedError, match="you may not list workloads") as refused:
            await access.require("t", "ml", "list")
        assert refused.value.status == 403


async def test_flood_of_tokens_is_limited(tmp_path):
    async with reviewed(tmp_path, known=False) as (access, server, _):
        answers = await asyncio.gather(
            *(access.require(f"t{number}", "ml", "list") for number in range(200)), return_exceptions=True
        )
        statuses = [answer.status for answer in answers if isinstance(answer, RefusedError)]
        assert len(statuses) == 200
        assert statuses.count(429) >= 175
        assert len(server.requests) <= 25


async def refusals(*asked) -> int:
    answers = await asyncio.gather(*asked, return_exceptions=True)
    return sum(isinstance(answer, RefusedError) and answer.status == 429 for answer in answers)


async def test_reviews_of_one_user_leave_some_for_others(tmp_path):
    async with reviewed(tmp_path, allowed=False) as (access, _, clock):
        for second in range(4):
            namespaces = [Permission("list", namespace=f"{second}-{number}") for number in range(100)]
            assert await refusals(*(access.may(User("bob"), asked) for asked in namespaces)) >= 80
            assert await refusals(access.user("t"), access.may(User("ann"), namespaces[0])) == 0
            clock.now += 1


async def test_flood_of_tokens_leaves_reviews_for_known_users(tmp_path):
    async with reviewed(tmp_path) as (access, server, clock):
        await access.user("t")
        server.says("POST", TOKENS, answering(201, {"status": {"authenticated": False}}))
        for second in range(4):
            clock.now += 1
            assert await refusals(*(access.user(f"{second}-{number}") for number in range(100))) >= 80
            assert await refusals(access.may(User("ann"), Permission("list", namespace=f"ns-{second}"))) == 0
        # The review of its own token is not counted with those of invalid ones.
        clock.now += 30
        await refusals(*(access.user(f"later-{number}") for number in range(100)))
        assert await refusals(access.user("t")) == 0


def test_cache_is_bounded():
    cache = AnswerCache[bool](size=3, clock=lambda: 0)
    for number in range(10):
        cache.put(number, answer=True, is_yes=True)
    assert len(cache) == 3
    assert cache.get(0) is None
    assert cache.get(9) == (True,)
