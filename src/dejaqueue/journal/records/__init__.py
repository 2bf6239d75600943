"""Journals on servers that exist: numbered records at a backend, and a copy here to read from."""
