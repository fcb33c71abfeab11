"""How does a comparison reach the people who review a change? Through the forge that hosts it, with nothing but the standard library."""

from __future__ import annotations

from tracekit.forges.github import ForgeError, Outcome, PullRequest, comment, pull_request_of, tag_of

__all__ = ["ForgeError", "Outcome", "PullRequest", "comment", "pull_request_of", "tag_of"]
