"""Runs, their files and tags, and the jobs that read them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "runs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("nbytes", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("analysis", sa.String(64)),
        sa.Column("partial", sa.Boolean, nullable=False),
        sa.Column("ranks", sa.Integer),
        sa.Column("steps", sa.Integer),
        sa.Column("step_ns", sa.Float),
        sa.Column("peak_bytes", sa.BigInteger),
        sa.Column("bubble_ratio", sa.Float),
        sa.Column("verdict", sa.String(16)),
        sa.Column("headline", sa.Text),
        sa.Column("error", sa.Text),
    )
    op.create_index("runs_by_fingerprint", "runs", ["fingerprint"])
    op.create_index("runs_by_creation", "runs", ["created_at"])
    op.create_table(
        "files",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("nbytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )
    op.create_table(
        "tags",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("tag", sa.String(64), primary_key=True),
    )
    op.create_index("tags_by_tag", "tags", ["tag"])
    op.create_table(
        "jobs",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("queued_at", sa.Float, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(128)),
        sa.Column("lease_until", sa.Float),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("events_per_s", sa.Float),
        sa.Column("seconds_left", sa.Float),
        sa.Column("ranks_read", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )
    op.create_index("jobs_by_queue", "jobs", ["queued_at"])
