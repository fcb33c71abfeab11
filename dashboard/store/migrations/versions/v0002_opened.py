"""When a run was last opened, for its time to live, and what it takes on the disk beside its uploads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a run that is there already counts as opened when it was made, and as large as its uploads."""
    with op.batch_alter_table("runs") as table:
        table.add_column(sa.Column("opened_at", sa.Float))
        table.add_column(sa.Column("stored_bytes", sa.BigInteger))
    op.execute("UPDATE runs SET opened_at = created_at, stored_bytes = nbytes")
    with op.batch_alter_table("runs") as table:
        table.alter_column("opened_at", existing_type=sa.Float, nullable=False)
        table.alter_column("stored_bytes", existing_type=sa.BigInteger, nullable=False)
