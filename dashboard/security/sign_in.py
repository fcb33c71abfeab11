"""What does someone see who has not said the token? One field, on a page that needs no script."""

from __future__ import annotations

from flask import Response, make_response

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
{again}<title>tracekit: sign in</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; display: grid; min-height: 90vh; place-content: center; }}
main {{ width: min(26rem, 90vw); }}
label, input, button {{ display: block; width: 100%; box-sizing: border-box; font: inherit; }}
input, button {{ padding: .5rem .75rem; margin: .5rem 0; }}
.wrong {{ color: #c92a2a; }}
@media (prefers-color-scheme: dark) {{ .wrong {{ color: #ff8787; }} }}
</style>
</head>
<body><main>
<h1>tracekit</h1>
{says}
<form method="get" action="/">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Sign in</button>
</form>
<p><small>It stands in the address that <code>tracekit serve</code> printed when it started.</small></p>
</main></body>
</html>
"""


def page(*, wrong: bool = False) -> Response:
    """The page that asks for the token."""
    return _answer('<p class="wrong" role="alert">That is not the token of this server.</p>' if wrong else "", "")


def again() -> Response:
    """A page that asks for itself once more: a link from another site comes without the cookie, which stays within this one."""
    return _answer("<p>One moment…</p>", '<meta http-equiv="refresh" content="0">\n')


def _answer(says: str, refresh: str) -> Response:
    answer = make_response(_PAGE.format(says=says, again=refresh), 401)
    answer.mimetype = "text/html"
    return answer
