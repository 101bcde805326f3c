"""Files done once and right: opened without following links, written whole and private, synced, locked.

A leaf: its modules import errors and text rules at most, and each is loaded by itself, because the keeper, a process
that must start in no time, uses two of them. Nothing here decides what a file means; callers do.
"""
