"""Rounding and storing weights; `export/precision_plan.py` assigns precisions to layers."""
