"""Fumehood for Python: ``fumehood.tools`` is the gate before an agent's tools, ``fumehood.webhook`` checks deliveries."""

__version__ = "0.1.0"
