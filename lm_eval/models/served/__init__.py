"""Models that are reached over HTTP: the client, the dialects of servers, and the probe."""
