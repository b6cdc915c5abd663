"""rooflens watches live LLM serving engines, iteration by iteration, beside the hardware roofline."""

__version__ = "0.1.0"
