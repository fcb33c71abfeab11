"""Where is it written down which runs there are? SQLAlchemy Core on SQLite or Postgres; the schema is kept by alembic."""
