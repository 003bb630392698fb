"""Training by several worker processes.

`joining` lists the workers and waits until all have connected, and `exchange` sends messages
between training steps.
"""
