"""Trained models from files of others."""
