"""Each threat of the list meets its measure."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from dashboard.library import Library
from dashboard.logs import Legible
from dashboard.security import Access, allow_scripts, may_listen, new_token
from dashboard.security.sessions import user_of
from dashboard.serve import dashboard
from dashboard.settings import Settings
from tests.dashboard.server.conftest import OURS, TOKEN, named, serving
from tracekit.errors import UsageError

PROXIED = Access(proxy_header="X-Forwarded-User")


@pytest.fixture
def guarded(tmp_path: Path) -> FlaskClient:
    return serving(tmp_path, Access(token=TOKEN)).test_client()


# ------------------------------------------------------------------ DNS rebinding


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8050", 200),
        ("127.0.0.1:8050", 200),
        ("[::1]:8050", 200),
        ("LOCALHOST.", 200),
        ("evil.example:8050", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.7", 403),
        ("localhost@evil.example", 403),
        ("", 403),
    ],
)
def test_a_page_that_was_rebound_to_us_gets_nothing(client: FlaskClient, host: str, status: int) -> None:
    assert client.get("/page", headers={"Host": host}).status_code == status


def test_beyond_loopback_addresses_are_ours_and_strange_names_are_not(tmp_path: Path) -> None:
    client = serving(tmp_path, PROXIED, host="0.0.0.0").test_client()
    signed = {"X-Forwarded-User": "ada"}
    assert [client.get("/page", headers={"Host": h, **signed}).status_code for h in ("10.0.0.5:8050", "evil.example")] == [200, 403]


# ------------------------------------------------------------------ requests that another site starts


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X-Tracekit": "0"}, 403),
        (OURS, 201),
        ({**OURS, "Origin": "http://localhost"}, 201),
        ({**OURS, "Origin": "http://localhost:3000"}, 403),
        ({**OURS, "Origin": "https://evil.example"}, 403),
        ({**OURS, "Origin": "null"}, 403),
        ({**OURS, "Sec-Fetch-Site": "same-site"}, 403),
        ({**OURS, "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_write_of_another_site_is_refused(client: FlaskClient, headers: dict[str, str], status: int) -> None:
    wanted = {"Upload-Length": "5", "Upload-Metadata": named("r.json", 5)["Upload-Metadata"], "Tus-Resumable": "1.0.0"}
    assert client.post("/api/uploads", headers={**wanted, **headers}).status_code == status


def test_callbacks_of_dash_need_no_header_but_our_own_page(client: FlaskClient) -> None:
    path = "/_dash-update-component"
    assert client.post(path, json={}).status_code == 200
    assert client.post(path, json={}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.post(path, json={}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.post(path, data="{}", content_type="text/plain").status_code == 403  # what a form of another site can send


def test_another_site_may_link_to_a_page_but_not_load_it_into_its_own(client: FlaskClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/page", headers=link).status_code == 200
    for other in (
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    ):
        assert client.get("/page", headers={**link, **other}).status_code == 403


def test_nobody_is_granted_what_a_preflight_asks(client: FlaskClient) -> None:
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-tracekit"}
    answer = client.options("/api/uploads", headers=asks)
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


# ------------------------------------------------------------------ who is asking


def test_nobody_enters_without_the_token(guarded: FlaskClient) -> None:
    assert guarded.get("/page").status_code == 401
    assert guarded.get("/api/uploads").json["error"].startswith("sign in first")
    assert guarded.post("/_dash-update-component", json={}).status_code == 401
    assert guarded.post("/api/uploads", headers=named("r.json", 5)).status_code == 401
    for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "tökèn"):
        assert guarded.get("/page", query_string={"token": wrong}).status_code == 401
        assert guarded.get("/page", headers={"Authorization": f"Bearer {wrong}"}).status_code == 401


def test_the_token_moves_from_the_address_to_a_cookie_that_no_script_and_no_other_site_has(guarded: FlaskClient) -> None:
    answer = guarded.get(f"/page?run=1&token={TOKEN}&step=2")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/page?run=1&step=2")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert guarded.get("/page?run=1").status_code == 200
    assert guarded.get("/page", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(("proto", "kept"), [("https", True), ("HTTPS, http", True), ("http", False), (None, False)])
def test_behind_a_proxy_with_tls_the_cookie_goes_by_https_only(guarded: FlaskClient, proto: str | None, kept: bool) -> None:
    answer = guarded.get("/page", query_string={"token": TOKEN}, headers={} if proto is None else {"X-Forwarded-Proto": proto})
    assert ("Secure" in answer.headers["Set-Cookie"].split("; ")) is kept


def test_signing_in_never_leads_to_another_host(guarded: FlaskClient) -> None:
    for path in ("//evil.example/", "/\\evil.example", "///evil.example", "/%09/evil.example", "/%0a%0d/evil.example"):
        where = guarded.get(path, query_string={"token": TOKEN}, base_url="http://localhost").headers["Location"]
        assert where.startswith("/") and not re.sub(r"\s", "", where).startswith(("//", "/\\"))


def test_a_cookie_of_another_token_opens_nothing(tmp_path: Path) -> None:
    other = Access(token="another-token-of-20-x")
    assert user_of(Access(token=TOKEN), {}, {Access(token=TOKEN).cookie: other.session}, "127.0.0.1") is None


def test_a_link_from_elsewhere_comes_without_the_cookie_and_is_asked_for_again(guarded: FlaskClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert b'http-equiv="refresh"' in guarded.get("/page", headers=link).data
    assert b'name="token"' in guarded.get("/page", headers={**link, "Sec-Fetch-Site": "same-origin"}).data


def test_only_the_proxy_says_who_somebody_is(tmp_path: Path) -> None:
    client = serving(tmp_path, PROXIED).test_client()
    named_user = {"X-Forwarded-User": "ada@example.org"}
    assert client.get("/page", headers=named_user).status_code == 200
    assert client.get("/page").status_code == 401
    assert client.get("/api/uploads").json["error"] == "the proxy before this server names no user; sign in there"
    assert client.get("/page", headers=named_user, environ_base={"REMOTE_ADDR": "10.0.0.9"}).status_code == 401
    assert client.get("/page", headers={"X-Forwarded-User": "<b>"}).status_code == 401


def test_what_one_user_uploads_no_other_sees(tmp_path: Path) -> None:
    client = serving(tmp_path, PROXIED).test_client()
    url = client.post("/api/uploads", headers={**named("r.json", 5), "X-Forwarded-User": "ada"}).headers["Location"]
    for user, status in (("ada", 200), ("bob", 404)):
        assert client.head(url, headers={**OURS, "X-Forwarded-User": user}).status_code == status
    assert client.get("/api/uploads", headers={"X-Forwarded-User": "bob"}).json == {"uploads": []}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "gpu7.example.org"])
def test_nobody_listens_beyond_loopback_without_asking_who_comes(host: str) -> None:
    with pytest.raises(UsageError, match="--token auto"):
        may_listen(host, Access())
    may_listen(host, Access(token=new_token()))
    may_listen(host, PROXIED)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    may_listen(host, Access())


@pytest.mark.parametrize("token", ["", "short", "with spaces and more words", "a/b?c&d=eeeeeeeeeeee"])
def test_a_token_that_can_be_guessed_or_that_an_address_changes_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="--token auto"):
        Access(token=token)


def test_every_route_asks_who_comes_and_every_write_for_our_header(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, token=TOKEN)
    library = Library(settings)
    client, signed = dashboard(settings, library).test_client(), {"Authorization": f"Bearer {TOKEN}"}
    asked = [(re.sub(r"<[^>]+>", "x", rule.rule), method) for rule in client.application.url_map.iter_rules() for method in rule.methods or ()]
    assert {("/api/uploads", "POST"), ("/api/uploads/x", "PATCH"), ("/api/runs", "POST"), ("/_dash-update-component", "POST")} <= set(asked)
    for path, method in asked:
        assert client.open(path, method=method, headers=OURS, json={}).status_code == (200 if path == "/healthz" else 401), (method, path)
        if method not in ("GET", "HEAD", "OPTIONS"):
            assert client.open(path, method=method, headers=signed).status_code == 403, (method, path)
    for path in ("/api/nothing", "/api/uploads/x", "/_dash-component-suites/dash/../../x.js", "/_dash-component-suites/x/x.js"):
        assert client.get(path, headers=signed).status_code == 404, path
    library.close()


def test_only_the_pulse_is_for_everybody(tmp_path: Path) -> None:
    server = serving(tmp_path, Access(token=TOKEN))
    server.add_url_rule("/healthz", view_func=lambda: {"status": "ok"}, endpoint="health")
    assert server.test_client().get("/healthz").json == {"status": "ok"}


def test_no_visitor_writes_a_line_of_the_log_or_moves_a_cursor() -> None:
    asked = logging.makeLogRecord({"msg": "request %s failed", "args": ("/\x1b[2J\r\u202e\x9b1A\nall is well",)})
    assert Legible().format(asked) == "request /�[2J���1A\n    all is well failed"


# ------------------------------------------------------------------ headers


def test_every_answer_says_what_may_be_done_with_it(client: FlaskClient) -> None:
    for path in ("/page", "/missing", "/api/uploads"):
        headers = client.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Cross-Origin-Opener-Policy" not in headers  # the window that opened Perfetto hears from it
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert (policy["default-src"], policy["script-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'self'", "'none'")
        assert "http" not in headers["Content-Security-Policy"] and "unsafe-eval" not in headers["Content-Security-Policy"]


def test_inline_scripts_run_only_by_their_hash(tmp_path: Path) -> None:
    server: Flask = serving(tmp_path)
    allow_scripts(server, lambda: ["'sha256-abc='"])
    assert "script-src 'self' 'sha256-abc=';" in server.test_client().get("/page").headers["Content-Security-Policy"]
