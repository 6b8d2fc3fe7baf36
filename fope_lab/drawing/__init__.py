"""Figures: colours, curves, heat maps, and SVG that adapts to light and dark pages."""
