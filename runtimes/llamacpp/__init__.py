"""Stock llama.cpp as a backend."""
