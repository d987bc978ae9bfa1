"""Programs that run inside the sandbox.

The parent compiles them and sends the code through the pipe of the job; nothing of the project is visible in
there. So they import the standard library's small modules only, and nothing of `reasoner`.
"""
