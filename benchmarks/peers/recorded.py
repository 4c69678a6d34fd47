"""Figures of peers that may not be had where this runs, for a look beside ours; no verdict rests on them.

Where llama.cpp without AMX was measured in the same way there, `LEADS` says how far ahead of it the best was: a table
shows ours over that many times llama.cpp's figure here.

Measured 2026-11-29 on an AVX-512/AMX machine (2 cores, 2 threads, SmolLM2-135M, medians of 3 to 5 runs): llama.cpp with
AMX on the same GGUF file, vLLM W8A8 and OpenVINO with int8 weights on the same model.
"""

from __future__ import annotations

SOURCE = "measured 2026-11-29 on an AVX-512/AMX machine"

RECORDED: dict[str, str] = {
    "decode 0": "llama.cpp AMX 335",
    "decode 512": "llama.cpp AMX 188",
    "decode 2048": "llama.cpp AMX 87",
    "prefill 512": "llama.cpp AMX 1,647, without AMX 354; vLLM W8A8 6,321",
    "prefill 2048": "llama.cpp AMX 919, without AMX 302; vLLM W8A8 5,313",
    "batch 32": "llama.cpp AMX 678",
    "batch 512": "vLLM W8A8 445",
    "correction 512": "llama-server AMX 37",
    "correction 2048": "OpenVINO 55",
    "correction 6000": "OpenVINO 87",
    "start warm": "llama.cpp 0.19",
    "perplexity": "llama.cpp 19.01; float weights 18.98",
}
"""By work: the best peers' figures, in the unit of the work."""

LEADS: dict[str, float] = {
    "decode 0": 335 / 116,
    "decode 512": 188 / 87,
    "decode 2048": 87 / 56,
    "prefill 512, llama.cpp's best": 1647 / 354,
    "prefill 2048, llama.cpp's best": 919 / 302,
    "prefill 512, the best of all": 6321 / 354,
    "prefill 2048, the best of all": 5313 / 302,
    "batch 32": 678 / 240,
}
"""By work: the best recorded peer over llama.cpp with AVX-512 and without AMX."""
