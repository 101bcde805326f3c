"""Runs that other tools began: found, explained, repaired by their own rules, and carried on.

One package per format. What they read is foreign data: never trusted, never executed, always bounded.
"""
