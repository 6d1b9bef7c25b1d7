"""The rows of an analysis and the SQL tables over them, in DuckDB."""
