"""Facts of all ranks -> Job: how do the ranks hang together?"""
