"""Results of benchmarks: vLLM's, SGLang's, aiperf's, llama-bench's and others', each to an Observation.

They live beside the scrapers and the readers of logs, in the folder that knows how engines and their tools spell
things; what they write is kept by nobody, and the roofline is laid beside it by whoever asks.
"""
