"""Results on their way back: cleaned, cut, made readable."""
