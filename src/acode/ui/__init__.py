"""Sessions to look at: the HTML report, and the page that follows sessions in a browser.

Views are built here from the same functions as the commands: `preview`, `session_list`, `session_commands`. Nothing in
this package decides anything about a session, and no text reaches the HTML without being redacted, made printable and
escaped.
"""
