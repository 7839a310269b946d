"""Whose fault it is that a model fails or differs in a mode: a ladder of ever more machinery.

``command`` is the verb, in the parent; each rung is a worker process of its own.
"""
