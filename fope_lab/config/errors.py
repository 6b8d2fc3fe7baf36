"""The base of all errors that the user can mend, which exported models carry: no imports."""


class UserError(Exception):
    """Something about the request is wrong, so the text tells the user what to change.

    The command line prints the text without a traceback and exits with code 2. A subclass that is
    also a ValueError is raised where options are built, and there any ValueError is collected.
    """
