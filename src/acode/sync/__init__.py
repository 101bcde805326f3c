"""The second tier: a shared copy of each session in PostgreSQL, offline first, one owner at a time.

The local log is the truth while a session runs. Rows that are durable here are pushed as they stand by one thread in
the background; nothing waits for it, and no server is needed. A lease with a generation names the machine that may
write; a history that two machines wrote is never merged.
"""
