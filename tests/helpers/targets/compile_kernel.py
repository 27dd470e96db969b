"""``compile_kernel.py FILE KERNEL "cuda 90 32" CONSTANTS``: compile a kernel for a GPU, and print what came of it.

Matrices are bf16, sums float32, and tables int32. Matrices and strides are multiples of 16, as rows of tensors are.
"""

import importlib.util
import json
import sys
from types import SimpleNamespace

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TABLES = ("tiles", "starts", "waits", "flags")


def type_of(name: str, constants: dict[str, object]) -> str:
    """The type of a parameter, by its name."""
    plain = name.removeprefix("magus_")
    if name in constants:
        return "constexpr"
    if plain in TABLES:
        return "*i32"
    if plain == "partial":
        return "*fp32"
    return "*bf16" if plain.rstrip("_ptr").lower() in ("a", "b", "c", "x", "w", "y") else "i32"


def main(path: str, kernel: str, target: str, constants: dict[str, object]) -> None:
    """Compile, and print JSON."""
    spec = importlib.util.spec_from_file_location("plan", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, kernel)
    signature = {name: type_of(name, constants) for name in function.arg_names}
    aligned = [
        index
        for index, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.startswith("stride")
    ]
    backend, architecture, lanes = target.split()
    gpu = GPUTarget(backend, int(architecture) if architecture.isdigit() else architecture, int(lanes))
    # Kernels ask which GPU they are compiled for, and there is none.
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: gpu))
    made = triton.compile(
        ASTSource(
            fn=function,
            signature=signature,
            constexprs=constants,
            attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
        ),
        target=gpu,
        options={"num_warps": 8, "num_stages": 3},
    )
    binaries = {name: len(made.asm[name]) for name in ("cubin", "hsaco") if name in made.asm}
    assembly = made.asm.get("ptx") or made.asm["amdgcn"]
    json.dump({"binaries": binaries, "assembly": assembly, "shared_bytes": made.metadata.shared}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
