"""The gate before an agent's tools: each call is judged, counted, asked about and recorded before the function runs.

``Gateway`` starts ``fumehood tools serve --stdio`` and speaks to it; ``tool`` (or ``Gateway.tool``) makes a guarded function
from type hints. A guarded function never runs unless the gate said so: not when it belongs to no gateway, not when the gate
is gone.
"""

from ._gateway import Gateway, ToolFailed
from ._pipe import Answerer, GatewayError
from ._schema import Bounds, Unfit, schema_of
from ._tool import Tool, tool
from ._verdict import Denied, Reason, Verdict

__all__ = [
    "Answerer",
    "Bounds",
    "Denied",
    "Gateway",
    "GatewayError",
    "Reason",
    "Tool",
    "ToolFailed",
    "Unfit",
    "Verdict",
    "schema_of",
    "tool",
]
