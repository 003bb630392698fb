"""Training by several worker processes.

`joining` lists the workers and waits until all have connected, `exchange` sends messages
between training steps, and `agreement` decides with them what every worker does next. Imports
everything that `training` may.
"""
