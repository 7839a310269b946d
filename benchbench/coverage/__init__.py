"""Which ops of a model enter the Ascend graph, and why the others do not; no NPU needed.

``command`` is the verb, in the parent; ``work`` is the worker that lowers the model with the real
torchair. Converter coverage says nothing about which operators the Graph Engine supports.
"""
