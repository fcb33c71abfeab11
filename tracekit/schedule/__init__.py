"""Pipeline schedules: which one is it?"""
