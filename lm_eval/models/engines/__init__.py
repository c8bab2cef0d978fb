"""Inference engines that run in this process: vLLM, SGLang and llama.cpp."""
