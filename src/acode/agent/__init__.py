"""The agent: a model plans and works, and every request and every tool call is a durable step.

It is a program like any other that uses the library: it asks for its steps, and finds on record what is done. A model's
answer is data; the approved plan and the policy for tools decide here which actions happen.
"""
