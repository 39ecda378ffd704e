"""The model: base decoder, compositional embedder, micro-step decoder, stop head."""
