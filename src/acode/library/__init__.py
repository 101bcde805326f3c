"""The public Python surface: durable steps in ordinary programs.

`import acode` names all of it. Nothing here prints, prompts or installs a signal handler; the engine beneath is the one
that plans use, so a program's session is listed, explained, verified and resolved like any other.
"""
