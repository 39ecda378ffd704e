"""How weights are rounded and stored; which layer gets which precision is `export/precision_plan.py`."""
