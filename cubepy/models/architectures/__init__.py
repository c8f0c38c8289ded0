"""Families of models, each written once: a decoder that writes text, an encoder that reads it."""
