"""Bytes as C: the model as an aligned array, and the samples of the example."""

import re

import numpy as np

from pmeta.device import DeviceModel


def array(name: str, data: bytes) -> str:
    """`data` as a constant array of 32-bit words, so that it is aligned; zeros fill the last.

    >>> print(array("x", b"abcde"))
    const uint32_t x[2] = {
        0x64636261, 0x00000065,
    };
    """
    words = np.frombuffer(data + bytes(-len(data) % 4), "<u4")
    lines = (
        "    " + " ".join(f"0x{word:08x}," for word in words[at : at + 8])
        for at in range(0, len(words), 8)
    )
    return "\n".join([f"const uint32_t {name}[{len(words)}] = {{", *lines, "};"])


def model_c(data: bytes, header: str = "model.h") -> str:
    """model.c: a file that `pmeta_open` takes, little-endian as the devices are."""
    head = "/* A model for pmeta_open, aligned; it stays in flash. Made by pmeta. */"
    return f'{head}\n#include "{header}"\n\n{array("model_file", data)}\n'


def safe(name: str) -> str:
    """A name that may stand in a string of C and in a build file."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)


def model_facts(name: str, data: bytes, model: DeviceModel) -> dict[str, int | str]:
    """What a program in C asks of a model before it opens it."""
    return {
        "name": safe(name),
        "bytes": len(data),
        "arena_bytes": model.arena_bytes,
        "state_bytes": model.state_bytes,
        "outputs": model.outputs * model.rows,
        "repeated": int(model.repeated),
    }


def model_h(facts: dict[str, int | str]) -> str:
    """model.h: the array, and what the model takes as macros."""
    shown = {name: f'"{v}"' if isinstance(v, str) else v for name, v in facts.items()}
    macros = "\n".join(f"#define MODEL_{name.upper()} {v}" for name, v in shown.items())
    return (
        "/* The model of model.c, and the bytes that it takes. Made by pmeta. */\n"
        "#ifndef MODEL_H\n#define MODEL_H\n#include <stdint.h>\n\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        f"{macros}\nextern const uint32_t model_file[(MODEL_BYTES + 3) / 4];\n\n"
        "#ifdef __cplusplus\n}\n#endif\n#endif\n"
    )


def samples_c(support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> str:
    """samples.c: (n, *shape) of the example, and their labels (n,), or wanted outputs
    (n, rows, actions) of a policy."""
    stride = -(-support[0].nbytes // 4)
    parts = [
        "/* Samples of the example, in flash. On your device these functions return the samples of",
        " * its sensor: support samples are fed again in each step, so they are kept until the",
        " * adaptation is done. A query is needed only while it is classified. */",
        '#include "samples.h"',
        "",
        "static " + array("support", b"".join(_padded(x) for x in support)),
        "static " + array("query", b"".join(_padded(x) for x in query)),
        "",
        f"const void *samples_support(uint32_t i) {{ return support + i * {stride}u; }}",
        f"const void *samples_query(uint32_t i) {{ return query + i * {stride}u; }}",
    ]
    if labels.ndim == 1:
        numbers = ", ".join(str(int(label)) for label in labels)
        kind = "uint8_t" if int(labels.max()) < 256 else "uint32_t"
        parts += [
            f"static const {kind} label[{len(labels)}] = {{{numbers}}};",
            "uint32_t samples_label(uint32_t i) { return label[i]; }",
        ]
    else:
        wanted = np.ascontiguousarray(labels, "<f4")
        words = wanted[0].size
        parts += [
            "static " + array("wanted", wanted.tobytes()),
            "const float *samples_wanted(uint32_t i)",
            "{",
            f"    return (const float *)(const void *)(wanted + i * {words}u);",
            "}",
        ]
    return "\n".join(parts) + "\n"


def samples_h(support: int, query: int, classes: int) -> str:
    """samples.h: how many there are, and the functions of samples.c; no classes for a policy."""
    last = (
        "const float *samples_wanted(uint32_t i); /* (rows, actions) */"
        if not classes
        else "uint32_t samples_label(uint32_t i);"
    )
    number = f"#define SAMPLES_CLASSES {classes}\n" if classes else ""
    return (
        "/* Where samples come from: yours to change. */\n"
        "#ifndef SAMPLES_H\n#define SAMPLES_H\n#include <stdint.h>\n\n"
        f"#define SAMPLES_SUPPORT {support}\n#define SAMPLES_QUERY {query}\n{number}\n"
        "const void *samples_support(uint32_t i); /* as many bytes as the model reads, aligned */\n"
        f"const void *samples_query(uint32_t i);\n{last}\n\n#endif\n"
    )


def _padded(x: np.ndarray) -> bytes:
    data = np.ascontiguousarray(x).tobytes()
    return data + bytes(-len(data) % 4)
