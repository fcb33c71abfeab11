"""How does alembic run here? On the connection it is given, inside that connection's transaction."""

from __future__ import annotations

from alembic import context

from dashboard.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
