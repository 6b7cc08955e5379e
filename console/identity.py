"""Identifies the user of a request: by a bearer token, the session cookie, or headers of an authenticating proxy."""

from urllib.parse import urlsplit

from aiohttp import web

from console.settings import ConsoleSettings
from controller.kube.access_reviews import Access, RefusedError, User, bearer_token
from controller.kube.timing import RequestRates

#: Browsers refuse longer cookies.
MAX_TOKEN_CHARACTERS = 3_800
_MAX_HEADER_CHARACTERS = 1_024
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Requests of a user that may come at once, as seconds of its rate.
_BURST_SECONDS = 4
#: CPU time of pages that counts as one request of their user: by default one user takes a fifth of a core at most.
_SECONDS_OF_REQUEST = 0.004


class Identity:
    """Identifies users and keeps the session in a cookie that no script and no other site can read."""

    def __init__(self, access: Access, settings: ConsoleSettings) -> None:
        self._access = access
        self._is_behind_proxy = settings.proxy_client_ca is not None
        self._is_encrypted = settings.certificate_directory is not None
        # Host names have no case; those of requests are in lower case here.
        allowed = frozenset(map(str.lower, settings.allowed_hosts))
        self._hosts = allowed or (frozenset() if self._is_encrypted else _LOOPBACK)
        # Browsers accept a cookie with this prefix from HTTPS only, and never for a subdomain.
        self._cookie = "__Host-volcano-global" if self._is_encrypted else "volcano-global"
        rate = settings.requests_per_second
        self._rates = RequestRates(rate, burst=_BURST_SECONDS * rate)

    def limit(self, request: web.Request) -> None:
        """Count one request of its user or, before the login, of its address; raise `RefusedError`."""
        user = self._known_user(request)
        if not self._rates.admits(f"user {user.username}" if user is not None else f"address {request.remote}"):
            raise RefusedError(429, "TooManyRequests", "too many requests; try again after a second")

    def admits(self, user: User) -> bool:
        """Count one update of an open page of *user*; return whether it may be built now."""
        return self._rates.admits(f"user {user.username}")

    def charge(self, user: User, seconds: float) -> None:
        """Count the CPU time of a page of *user*, so that its next requests are refused if that was too much."""
        self._rates.spend(f"user {user.username}", seconds / _SECONDS_OF_REQUEST)

    def _known_user(self, request: web.Request) -> User | None:
        """Return the user, if it is known without a review."""
        if not self._is_behind_proxy:
            return self._access.known_user(self.token(request))
        try:
            return _proxy_user(request)
        except RefusedError:
            return None

    def check_host(self, request: web.Request) -> None:
        """Refuse other host names than the console's own, which a malicious site may resolve to this address."""
        try:
            host = urlsplit(f"//{request.host}").hostname or ""
        except ValueError:
            host = request.host
        if self._hosts and host not in self._hosts:
            raise RefusedError(421, "MisdirectedRequest", f"the console does not serve the host {host!r}")

    def check_origin(self, request: web.Request, *, is_form: bool = False) -> None:
        """Refuse a request of another site's page, and a form without an origin."""
        origin = request.headers.get("Origin")
        own = f"{'https' if self._is_encrypted else 'http'}://{request.host}"
        is_known = not is_form or request.headers.get("Sec-Fetch-Site") == "same-origin"
        if origin != own and not (origin is None and is_known):
            raise RefusedError(403, "Forbidden", "the request does not come from a page of the console")

    async def user(self, request: web.Request) -> User:
        """Return the user; raise `RefusedError` with status 401 if there is none."""
        if self._is_behind_proxy:
            return _proxy_user(request)
        token = self.token(request)
        user = await self._access.user(token) if token else None
        if user is None:
            raise RefusedError(401, "Unauthorized", "sign in with a valid token of the Karmada API server")
        return user

    async def user_of(self, token: str) -> User | None:
        """Return the user of a token from the login form, ``None`` if it is not valid."""
        return await self._access.user(token) if 0 < len(token) <= MAX_TOKEN_CHARACTERS else None

    def token(self, request: web.Request) -> str:
        """Return the token of a request, empty without one; never one from its address."""
        return (
            bearer_token(request.headers.get("Authorization", ""))
            or request.cookies.get(self._cookie, "")[:MAX_TOKEN_CHARACTERS]
        )

    def has_session(self, request: web.Request) -> bool:
        """Return whether the user signed in by the form, and can sign out."""
        return not self._is_behind_proxy and self._cookie in request.cookies

    def begin(self, response: web.StreamResponse, token: str) -> None:
        """Begin a session that ends with the browser, or when the token is not valid any more."""
        response.set_cookie(self._cookie, token, path="/", httponly=True, secure=self._is_encrypted, samesite="Strict")

    def end(self, response: web.StreamResponse) -> None:
        """End the session."""
        response.del_cookie(self._cookie, path="/", httponly=True, secure=self._is_encrypted, samesite="Strict")


def _proxy_user(request: web.Request) -> User:
    """Return the user in the headers of the proxy, which TLS has authenticated."""
    name = request.headers.get("X-Remote-User", "")
    groups = tuple(
        group.strip() for value in request.headers.getall("X-Remote-Group", []) for group in value.split(",")
    )
    if not name:
        raise RefusedError(401, "Unauthorized", "the proxy did not send the header X-Remote-User")
    if any(len(text) > _MAX_HEADER_CHARACTERS for text in (name, *groups)):
        problem = f"the proxy sent a name of a user or group of more than {_MAX_HEADER_CHARACTERS:,} characters"
        raise RefusedError(403, "Forbidden", problem)
    if name.startswith("system:") or any(group.startswith("system:") for group in groups):
        # A proxy knows users of an organisation; it must not speak for components of the control plane.
        raise RefusedError(403, "Forbidden", "users and groups of the proxy must not begin with system:")
    return User(name, groups=(*filter(None, groups), "system:authenticated"))
