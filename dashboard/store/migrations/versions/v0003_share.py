"""How much of the reading of a run is over, files that are being read included."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of a job that is there already it is unknown."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("share", sa.Float))
