"""Other programs as contenders of `bench`."""
