"""Groups of reductions and the maps around them, each as one step."""
