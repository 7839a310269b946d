"""Reporters: rows that are already compared in, text out. No torch, no clock, no files."""
