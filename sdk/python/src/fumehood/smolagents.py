"""The executor of smolagents' ``CodeAgent``, over one live sandbox.

.. code-block:: python

    agent = CodeAgent(..., executor=SandboxExecutor(box))

The code of one agent runs in one Python, which keeps its variables. It is no Jupyter kernel: text and values that are JSON come
back, pictures do not. Packages are installed in the sandbox beforehand, or not at all.
"""

from __future__ import annotations

import ast
from typing import Any, Sequence

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from ._session import PythonSession, SessionEnded
from ._sync import Sandbox
from .errors import TimeoutException


#: Modules that are named otherwise than their packages.
_MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "beautifulsoup4": "bs4", "opencv-python": "cv2", "pyyaml": "yaml"}


class SandboxExecutor(RemotePythonExecutor):
    """Runs the agent's code in ``box``; ``timeout`` is in seconds for each piece. The sandbox stays its maker's, who ends it.

    ``additional_imports`` must be installed in the sandbox: what is missing is an ``AgentError``.
    """

    def __init__(
        self, box: Sandbox, additional_imports: Sequence[str] = (), logger: Any = None, *, timeout: float | None = 120
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger())
        self._session = PythonSession(box, timeout)
        self._defining = False
        if missing := self._missing(additional_imports):
            raise AgentError(f"not installed in the sandbox: {', '.join(missing)}", self.logger)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Defines the agent's tools inside. A module that is missing there fails when it is used, not here."""
        self._defining = True
        try:
            super().send_tools(tools)
        finally:
            self._defining = False

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs code; raises smolagents' ``AgentError`` with what the code printed and raised, for the model to see."""
        try:
            done = self._session.run(_patient(code) if self._defining else code)
        except (TimeoutException, SessionEnded) as error:
            if error.code in ("ended", "paused", "closed"):
                raise
            printed = f"{error.text}\n" if isinstance(error, SessionEnded) else ""
            raise AgentError(f"{printed}{error}; variables are lost", self.logger) from error
        if done.error == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(done.message or "", allow_pickle=False)
            return CodeOutput(output=answer, logs=done.logs, is_final_answer=True)
        if done.error is not None:
            raise AgentError(f"{done.logs}\n{done.traceback}", self.logger)
        return CodeOutput(output=done.result, logs=done.logs, is_final_answer=False)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs nothing: says which are missing. smolagents asks for whatever a tool might import."""
        if missing := self._missing(additional_imports):
            self.logger.log(f"not installed in the sandbox: {', '.join(missing)}")
        return additional_imports

    def _missing(self, packages: Sequence[str]) -> list[str]:
        names = {name: _MODULES.get(name, name.partition("[")[0].replace("-", "_")) for name in packages}
        code = f"import importlib.util\n[name for name, module in {names!r}.items() if importlib.util.find_spec(module) is None]"
        found = self._session.run(code).result if packages else []
        return [str(name) for name in found] if isinstance(found, list) else []

    def cleanup(self) -> None:
        """Ends its Python."""
        self._session.restart()

    def delete(self) -> None:
        """As :meth:`cleanup`."""
        self.cleanup()


def _patient(code: str) -> str:
    """Code whose own imports may fail: smolagents puts those of numpy and PIL in front of its final answer."""
    tree = ast.parse(code)
    for at, node in enumerate(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, [ast.Pass()])
            tree.body[at] = ast.Try([node], [handler], [], [])
    return ast.unparse(ast.fix_missing_locations(tree))


__all__ = ["SandboxExecutor"]
