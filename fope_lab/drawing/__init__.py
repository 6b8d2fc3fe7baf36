"""Figures: colours, curves, heat maps, and SVG that follows the page."""
