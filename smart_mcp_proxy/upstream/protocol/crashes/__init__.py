"""Words of a program that ended, and which of them say why."""
