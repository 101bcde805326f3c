"""Many machines, one guarantee: sessions are submitted to a queue, and workers move them on.

The queue engine orders, schedules and wakes. Everything that decides whether a step may run stays acode's: the log, the
lease with its generation, the policy, the evidence. One job is one attempt to move a session on; what follows from it
is decided by how the attempt ended (`schedule`), and every change of a session's state in the fleet is one transaction
with the change of its job (`server`).
"""
