"""Which of numba's passes a kernel needs."""

from __future__ import annotations

from typing import Any

NEEDLESS = frozenset(
    {
        "WithLifting", "InlineClosureLikes", "RewriteSemanticConstants", "DeadBranchPrune", "GenericRewrites",
        "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables", "FindLiterallyCalls", "LiteralUnroll",
        "ReconstructSSA", "LiteralPropagationSubPipelinePass", "PreLowerStripPhis", "InlineOverloads",
        "NopythonRewrites", "NoPythonSupportedFeatureValidation", "IRLegalization", "DumpParforDiagnostics",
    }
)  # fmt: skip


def lean(pipeline: Any) -> Any:
    """A pipeline of numba without the passes that generated code has no use for.

    Every variable of a kernel keeps its type, there are no closures and no `with`, and branches were decided before.
    Single assignment alone looks at the whole function once for each variable; without these passes a kernel takes
    half the time to compile, and LLVM makes the same instructions of it.
    """
    pipeline.passes[:] = [(step, text) for step, text in pipeline.passes if step.__name__ not in NEEDLESS]
    pipeline.finalize()
    return pipeline
