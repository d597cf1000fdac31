"""Teach a model in the browser: the engine as WebAssembly, a JavaScript module, one page."""
