"""Wire types to facts and engine values: the one place where the form of Kubernetes objects is known.

What cannot be read is told in the facts' ``flaw`` and never raised.
"""
