"""Teach a model in the browser: the engine as WebAssembly, a JavaScript module, and one page with
all of it inside."""
