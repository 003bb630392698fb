"""What the commands in `bin/` share: flags, a quiet TensorFlow, one line for an error.

Nothing imports this package but the commands.
"""
