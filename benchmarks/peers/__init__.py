"""acode beside other engines: the same trivial steps, the same disk, the same kills.

What stands in `on_*.py` runs in an interpreter that has the other engine and not acode, so it imports nothing but the
standard library and that engine. Nothing here is needed to run acode or its tests.
"""
