"""The shipped examples: files that each show one thing, layers, models with experts, templates, algorithms, papers."""

from importlib.resources import files
from pathlib import Path

__all__ = ["LAYERS", "MOE", "NAMES", "PAPERS", "TEMPLATES", "path"]

NAMES = (
    "llama70b_tp8_mi300x",
    "gemm_rs_h100",
    "decode_small_batch",
    "explicit_plan",
    "declarative_plan",
    "all_gather_h100",
    "all_reduce_h100",
    "all_to_all_mi300x",
    "hot_expert_mi300x",
    "ring_attention_h100",
    "ulysses_h100",
    "moe_dispatch_mi300x",
    "moe_combine_mi300x",
    "fsdp_two_nodes_h100",
    "four_systems",
)
LAYERS = (
    "layers/llama70b_layer",
    "layers/llama70b_backward",
    "layers/llama70b_layer_backward",
    "layers/llama70b_domino",
    "layers/deepseek_v3_backward",
    "layers/deepseek_v3_tbo",
    "layers/deepseek_v3_groups",
    "layers/fsdp_h100",
)
MOE = (
    "moe/deepseek_v3",
    "moe/deepseek_v3_train",
    "moe/deepseek_v3_two_batches",
    "moe/experts_v4_pro",
    "moe/glm_4_5",
    "moe/glm_4_5_train",
    "moe/gpt_oss_120b",
    "moe/gpt_oss_120b_train",
    "moe/kimi_k2",
    "moe/kimi_k2_train",
    "moe/qwen3_235b",
    "moe/qwen3_235b_train",
)
TEMPLATES = (
    "templates/all_gather_gemm",
    "templates/bulk",
    "templates/collectives",
    "templates/gemm_all_reduce",
    "templates/gemm_all_to_all_gemm",
    "templates/gemm_reduce_scatter",
    "templates/networks",
    "templates/ring_attention",
    "templates/two_nodes",
)
PAPERS = (
    "papers/astra_sim",
    "papers/conccl",
    "papers/dma_engines",
    "papers/eidola",
    "papers/ficco",
    "papers/gemm_ar_mi355x",
    "papers/infragraph",
    "papers/layers",
    "papers/mscclpp",
    "papers/programs",
    "papers/syncopate",
    "papers/trace",
    "papers/work_groups",
)


def path(name: str) -> Path:
    """Return the path of an example, ``name`` being one of ``NAMES``, ``LAYERS``, ``MOE``, ``TEMPLATES`` or ``PAPERS``.

    Raises
    ------
    ValueError
        If there is no such example.
    """
    names = (*NAMES, *LAYERS, *MOE, *TEMPLATES, *PAPERS)
    if name not in names:
        raise ValueError(f"there is no example {name!r}; the examples are {', '.join(names)}")
    return Path(str(files(__name__).joinpath(f"{name}.mgs")))
