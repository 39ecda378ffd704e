"""Where the files of bases come from: wheels, the hub, the cache, and the terms they are under."""
