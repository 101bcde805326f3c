"""Append: the SQLite log, checkpoints, blobs and the sync cursor. All SQL of the log lives here."""
