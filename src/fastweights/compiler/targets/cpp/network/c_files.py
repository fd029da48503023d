"""Writes one time step of a network as a C++ source with a C header, and its weights as a file that C maps."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from struct import pack

import torch
from torch import Tensor

from fastweights.compiler.ir.network import BufferRole, NetworkBuffer, NetworkProgram
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.targets.cell_spec import CellSpec
from fastweights.compiler.targets.cpp.network.emit import PROGRAM, source
from fastweights.compiler.targets.target import NetworkNames

WIDTH = 16
"""Bytes per vector. Every CPU with vectors has vectors of this width."""
ALIGNMENT = 64
"""Every array begins at a multiple of this number of bytes."""
MAGIC, VERSION = b"fw-net\r\n", 1
"""The first bytes of a weight file, which a transfer as text changes, and the version of its layout."""
INTERFACE = Path(__file__).with_name("interface.cpp")
HEADER = Path(__file__).with_name("interface.h")
C_TYPES = {"int64": "int64_t", "bool": "bool", "uint8": "uint8_t"}
BYTES = {"int64": 8, "bool": 1, "uint8": 1, "bfloat16": 2, "int8": 1}


class NetworkFiles:
    """The texts of the C files of a network, and the content of its weight file.

    Args:
        programs: The program of every function by name, "step" first. All have the same state, and weights with the
            same name are the same.
        dtype: The dtype of real buffers.
        passes: Compiles the cells of the programs.
        names: The names of inputs, outputs and states in C, by function.
        initial: The state before the first step, by tensor.
    """

    def __init__(
        self,
        programs: Mapping[str, NetworkProgram],
        dtype: torch.dtype,
        passes: Callable[[CellSpec], Passes],
        names: Mapping[str, NetworkNames],
        initial: Sequence[Tensor],
    ) -> None:
        self.programs, self.dtype, self.names, self.initial = programs, dtype, names, initial
        self.sources = [source(one, dtype, WIDTH // dtype.itemsize, passes, PROGRAM) for one in programs.values()]
        self.states = programs["step"].of(BufferRole.STATE)
        weights = {b.name: b for one in programs.values() for b in one.of(BufferRole.WEIGHT)}
        stored = [*weights.values(), *(b for b, x in zip(self.states, initial, strict=True) if x.any())]
        self.places, self.text_place = _places(stored, ALIGNMENT, self._bytes)
        self.weights = {name: self.places[b] for name, b in weights.items()}
        self.state_places, self.state_size = _places(self.states, 0, self._bytes)
        bodies = [f"namespace in_{name} {{\n{one.body}\n}}" for name, one in zip(programs, self.sources, strict=True)]
        self.source = "\n".join([self.sources[0].head, *bodies])
        identity = f"{self.source}{[*self.places.values(), self.text_place, self.state_size]}"
        self.digest = int.from_bytes(sha256(identity.encode()).digest()[:8], "little")

    def code(self) -> str:
        """The C++ source."""
        functions = [line for name, program in self.programs.items() for line in self._function(name, program)]
        body = "\n".join([*self._layout(), INTERFACE.read_text(encoding="utf-8"), *functions])
        return f'{self.source}\n#include <stddef.h>\n#include "network.h"\n{body}'

    def _layout(self) -> list[str]:
        """The constants that describe memory and the weight file."""
        magic = ", ".join(str(byte) for byte in MAGIC)
        shared, private = (size * self.dtype.itemsize for size in self._scratch())
        starts = [
            f"    {{{place}, {self.places.get(b, 0)}, {self._bytes(b)}}}," for b, place in self.state_places.items()
        ]
        return [
            "\nnamespace {\n",
            f"constexpr char MAGIC[8] = {{{magic}}};",
            f"constexpr uint64_t VERSION = {VERSION}, PROGRAM = {self.digest}u, TEXT = {self.text_place};\n",
            "// Bytes of scratch memory of all threads together, and of each thread.",
            f"constexpr size_t SHARED = {shared}, PRIVATE = {private};\n",
            "// A tensor of the state: its place in memory, that of its start in the file or 0 for zeros, its bytes.",
            "struct Start { uint64_t memory, file, size; };",
            f"constexpr Start starts[] = {{\n{chr(10).join(starts) or '    {0, 0, 0},'}\n}};\n",
            "}  // namespace",
        ]

    def _function(self, name: str, program: NetworkProgram) -> list[str]:
        """The function of a program, which collects the addresses of all buffers."""
        names, states = self.names[name], [f"n->memory + {place}" for place in self.state_places.values()]
        addresses = {
            BufferRole.WEIGHT: iter(
                [f"(void*)(n->weights + {self.weights[b.name]})" for b in program.of(BufferRole.WEIGHT)]
            ),
            BufferRole.INPUT: iter([f"(void*)x->{x}" for x in names.inputs]),
            BufferRole.STATE: iter(states),
            BufferRole.OUTPUT: iter([f"y->{y}" for y in names.outputs]),
            BufferRole.NEW_STATE: iter(states),
        }
        places = [next(addresses[b.role]) for b in program.arguments]
        outputs = f", const network_{_prefix(name)}outputs* y" if names.outputs else ""
        return [
            f'extern "C" int network_{name}(network* n, const network_{_prefix(name)}inputs* x{outputs}) {{',
            "    void* const p[] = {",
            *(f"        {place}," for place in [*places, "scratch(n)"]),
            "    };",
            f"    return in_{name}::network_step(p, (fw::Team)n->team) ? NETWORK_BAD_INDEX : NETWORK_OK;",
            "}\n",
        ]

    def header(self) -> str:
        """The C header."""
        scratch = sum(self._scratch()) * self.dtype.itemsize
        sizes = [("NETWORK_STATE", self.state_size), ("NETWORK_MEMORY", self.state_size + scratch + ALIGNMENT)]
        return "\n".join(
            [
                f"/* {self.programs['step'].title}. */",
                "#pragma once\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
                "/* Bytes of the state, and of all memory of a network but its weights. */",
                *(f"#define {name} {size}" for name, size in sizes),
                *self._states(),
                *(line for name, program in self.programs.items() for line in self._structures(name, program)),
                HEADER.read_text(encoding="utf-8"),
            ]
        )

    def _scratch(self) -> tuple[int, int]:
        """Elements of scratch memory of all threads together, and of each thread."""
        return max(one.shared for one in self.sources), max(one.private for one in self.sources)

    def _states(self) -> list[str]:
        """The places of the tensors of the state, for programs that look at them."""
        if not self.states:
            return []
        states = zip(self.state_places.items(), self.names["step"].states, strict=True)
        rows = [
            f"    NETWORK_STATE_{name} = {place}, /* {self._c_type(b)} {list(b.shape)} */"
            for (b, place), name in states
        ]
        return ["\n/* The first byte of every tensor of the state. */", "enum {", *rows, "};"]

    def _structures(self, name: str, program: NetworkProgram) -> list[str]:
        """The structures of the inputs and outputs of a program."""
        inputs, outputs = program.of(BufferRole.INPUT), program.of(BufferRole.OUTPUT)
        chunk = f"\n/* Time steps of network_chunk. */\n#define NETWORK_CHUNK {inputs[0].shape[1]}"
        return [
            *([chunk] if name == "chunk" else []),
            *self._structure(f"{_prefix(name)}inputs", "const ", inputs, self.names[name].inputs),
            *(self._structure(f"{_prefix(name)}outputs", "", outputs, self.names[name].outputs) if outputs else []),
        ]

    def _structure(
        self, title: str, constant: str, buffers: Sequence[NetworkBuffer], names: Sequence[str]
    ) -> list[str]:
        """The structure of inputs or outputs, and the numbers of their elements."""
        fields = list(zip(buffers, names, strict=True))
        prefix = f"network_{title}".upper().removesuffix("INPUTS").removesuffix("OUTPUTS")
        return [
            f"\n/* The {title.replace('_', ' ')}, and their numbers of elements. */",
            *(f"#define {prefix}{name.upper()} {b.size}" for b, name in fields),
            "typedef struct {",
            *(f"    {constant}{self._c_type(b)}* {name}; /* {list(b.shape)} */" for b, name in fields),
            f"}} network_{title};",
        ]

    def weight_file(self, tensors: Mapping[str, Tensor], text: bytes) -> bytes:
        """The content of the weight file.

        Args:
            tensors: The weights by name, with the types of their buffers.
            text: The text behind the weights.
        """
        content = bytearray(_aligned(self.text_place + len(text)))
        states = {b.name: x for b, x in zip(self.states, self.initial, strict=True)}
        for buffer, place in self.places.items():
            tensor = tensors[buffer.name] if buffer.role is BufferRole.WEIGHT else states[buffer.name]
            flat = tensor.detach().contiguous().flatten()
            content[place : place + self._bytes(buffer)] = flat.view(torch.uint8).numpy().tobytes()
        content[self.text_place : self.text_place + len(text)] = text
        head = MAGIC + pack("<QQQQ", VERSION, self.digest, len(content), len(text))
        content[: len(head)] = head
        content[ALIGNMENT - 8 : ALIGNMENT] = pack("<Q", _checksum(content))
        return bytes(content)

    def _bytes(self, buffer: NetworkBuffer) -> int:
        return buffer.size * BYTES.get(buffer.type, self.dtype.itemsize)

    def _c_type(self, buffer: NetworkBuffer) -> str:
        return C_TYPES.get(buffer.type, "float" if self.dtype == torch.float32 else "double")


def _prefix(name: str) -> str:
    """The beginning of the names of the C structures of a function."""
    return "" if name == "step" else f"{name}_"


def _places(
    buffers: Sequence[NetworkBuffer], first: int, size: Callable[[NetworkBuffer], int]
) -> tuple[dict[NetworkBuffer, int], int]:
    """The first byte of every buffer, and the byte behind the last one."""
    starts = list(accumulate((_aligned(size(b)) for b in buffers), initial=first))
    return dict(zip(buffers, starts, strict=False)), starts[-1]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _checksum(content: bytearray) -> int:
    """The sum of the hashes (splitmix64) of all 64-bit words and their places, modulo 2^64."""
    words = torch.frombuffer(content, dtype=torch.int64)
    x = words + torch.arange(1, len(words) + 1) * _signed(0x9E3779B97F4A7C15)
    x = (x ^ _right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _right(x, 27)) * _signed(0x94D049BB133111EB)
    return int((x ^ _right(x, 31)).sum()) % 2**64


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def _right(x: Tensor, bits: int) -> Tensor:
    """Unsigned numbers shifted to the right."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
