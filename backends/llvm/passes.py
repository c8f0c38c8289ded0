"""Which of numba's passes a kernel needs, and how they run soonest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions
from numba.core.types import BaseFunction

NEEDLESS = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "GenericRewrites",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "ReconstructSSA",
        "LiteralPropagationSubPipelinePass",
        "PreLowerStripPhis",
        "InlineOverloads",
        "NopythonRewrites",
        "NoPythonSupportedFeatureValidation",
        "IRLegalization",
        "DumpParforDiagnostics",
    }
)


def lean(pipeline: Any) -> Any:
    """A pipeline of numba without the passes that generated code has no use for.

    Every variable of a kernel keeps its type, there are no closures and no `with`, and branches
    were decided before. Single assignment alone looks at the whole function once for each variable;
    without these passes a kernel takes half the time to compile, and LLVM makes the same
    instructions of it.
    """
    pipeline.passes[:] = [step for step in pipeline.passes if step[0].__name__ not in NEEDLESS]
    pipeline.finalize()
    return pipeline


class LeanPipelines:
    """Makes the pipelines of a compiler of numba's lean; it stands before that among the bases."""

    def define_pipelines(self) -> list[Any]:
        return [lean(p) for p in super().define_pipelines()]  # type: ignore[misc]


def last_text_of(module: ir.Module) -> str:
    """The text of a module that nobody needs any more.

    Instructions and their blocks know each other, so Python would have to look at all of them to
    find that they are garbage: three times as long as it takes to part them. So texts take the
    place of a block's instructions.
    """
    texts = [
        (block, [text_of(i) for i in block.instructions])
        for function in module.functions
        for block in function.blocks
    ]
    for block, lines in texts:
        for instruction in block.instructions:
            if isinstance(instruction, ir.PhiInstr):
                instruction.incomings.clear()
        block.instructions[:] = lines
        block.terminator = None
    text = str(module)
    for function in module.functions:
        function.blocks.clear()
    return text


def text_of(i: Any) -> str:
    """The text of an instruction, as llvmlite has it. What it writes piece by piece, for every kind
    of instruction there may be, is written here at once for those that kernels mostly have.
    """
    write = WRITTEN.get(type(i))
    if write is None or i.metadata:
        return str(i)
    return write(i) if isinstance(i.type, ir.VoidType) else f"{i.get_reference()} = {write(i)}"


def _typed(values: Iterable[Any]) -> str:
    return ", ".join([f"{v.type!s} {v.get_reference()}" for v in values])


WRITTEN: dict[type, Callable[[Any], str]] = {
    instructions.Instruction: lambda i: (
        f"{' '.join([i.opname, *i.flags])} {i.type!s} "
        + ", ".join([o.get_reference() for o in i.operands])
    ),
    instructions.ICMPInstr: lambda i: (
        f"{' '.join([i.opname, *i.flags, i.op])} {_typed(i.operands[:1])}, "
        + i.operands[1].get_reference()
    ),
    instructions.CastInstr: lambda i: f"{i.opname} {_typed(i.operands)} to {i.type!s}",
    instructions.LoadInstr: lambda i: (
        f"load {i.type!s}, {_typed(i.operands)}{'' if i.align is None else f', align {i.align}'}"
    ),
    instructions.StoreInstr: lambda i: (
        f"store {_typed(i.operands)}{'' if i.align is None else f', align {i.align}'}"
    ),
    instructions.GEPInstr: lambda i: (
        f"getelementptr {'inbounds ' if i.inbounds else ''}{i.source_etype!s}, "
        + _typed([i.pointer, *i.indices])
    ),
    instructions.Branch: lambda i: f"{i.opname} {_typed(i.operands)}",
}
WRITTEN[instructions.FCMPInstr] = WRITTEN[instructions.ICMPInstr]
WRITTEN[instructions.ConditionalBranch] = WRITTEN[instructions.Branch]


@contextmanager
def remembered() -> Iterator[None]:
    """While a kernel compiles, the signature of a call is worked out once for a function and types
    of arguments.

    Numba asks every template of a function again at every call, for an operator also those of
    NumPy's ufuncs: half the time of its type inference. The caller holds numba's compiler lock, so
    no other compilation sees the change.
    """
    known: dict[Any, Any] = {}
    work_out = BaseFunction.get_call_type

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return work_out(self, context, args, kws)
        key = (self, args)
        signature = known.get(key)
        if signature is None:
            signature = known[key] = work_out(self, context, args, kws)
        return signature

    BaseFunction.get_call_type = get_call_type  # type: ignore[method-assign]
    try:
        yield
    finally:
        BaseFunction.get_call_type = work_out  # type: ignore[method-assign]
