"""Which tables does the store have? Times are seconds since 1970 (UTC), sizes are bytes; null is unknown.

This is what the newest migration leads to; a test holds the two against each other.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("nbytes", BigInteger, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("analysis", String(64)),
    Column("partial", Boolean, nullable=False),
    Column("ranks", Integer),
    Column("steps", Integer),
    Column("step_ns", Float),
    Column("peak_bytes", BigInteger),
    Column("bubble_ratio", Float),
    Column("verdict", String(16)),
    Column("headline", Text),
    Column("error", Text),
    Index("runs_by_fingerprint", "fingerprint"),
    Index("runs_by_creation", "created_at"),
)

files = Table(
    "files",
    metadata,
    Column("run_id", String(32), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("nbytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)

tags = Table(
    "tags",
    metadata,
    Column("run_id", String(32), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(64), primary_key=True),
    Index("tags_by_tag", "tag"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("run_id", String(32), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("queued_at", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(128)),
    Column("lease_until", Float),
    Column("cancelled", Boolean, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("started_at", Float),
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("events_per_s", Float),
    Column("seconds_left", Float),
    Column("share", Float),
    Column("ranks_read", Text, nullable=False),
    Column("message", Text, nullable=False),
    Index("jobs_by_queue", "queued_at"),
)
