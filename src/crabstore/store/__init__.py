"""The keyspace and every interface over it; names no backend, no database, no search engine."""
