"""The only orchestration: lock, fold, decide, check, plan, step, checkpoint.

It never prints, prompts or reads the environment: the world is an argument. Its modules are imported one by one,
because a list of sessions needs only a small part of them.
"""
