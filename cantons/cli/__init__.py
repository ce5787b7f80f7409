"""Owns: commands that read, call and print. May import: everything."""
