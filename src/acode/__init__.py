"""acode makes long runs of work survivable."""

__version__ = "0.1.0"
