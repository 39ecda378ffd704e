def check_parity(*a, **k):
    pass
