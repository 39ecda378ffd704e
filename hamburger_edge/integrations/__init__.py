"""Use HAMburgers in other libraries: transformers, optimum and lm-eval. No other package imports this one."""
