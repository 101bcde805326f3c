"""The agent: a model plans and works, and every request and every tool call is a durable step.

It is a program like any other that uses the library: it asks for its steps, and finds on record what is done. What a
model says is data; what happens is decided here, by the plan that was approved and the policy for tools.
"""
