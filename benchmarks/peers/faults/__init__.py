"""The fault scenarios that durable execution engines publish or test, against acode and against them in the same run.

`on_*.py` and `program.py` run in an interpreter that has the other engine and not acode: they import nothing but the
standard library, that engine and each other.
"""
