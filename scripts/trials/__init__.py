"""Parts of scripts/atlas.py: published servers installed, tried and compared."""
