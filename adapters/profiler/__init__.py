"""Profiles with step boundaries: Kineto JSON (torch.profiler) and the SQLite that `nsys export` writes.

``kineto`` and ``nsys`` read a file into a Capture, ``steps`` makes it the steps of each process and device.
"""
