"""Owns: tables and figures of finished runs. May import: metrics, errors."""
