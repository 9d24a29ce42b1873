"""E2B's first example, as it is printed. With `E2B_API_URL`, `E2B_SANDBOX_URL` and `E2B_API_KEY` of a `fumehood serve` it runs there."""

from e2b_code_interpreter import Sandbox

with Sandbox.create() as sandbox:
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("x+=1; x")
    print(execution.text)  # outputs 2
