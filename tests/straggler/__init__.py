"""The rank that others wait for is found, with its cause, and none is where all are alike."""
