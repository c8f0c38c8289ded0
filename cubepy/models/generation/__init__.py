"""Text out of decoders: caches of keys and values, choosing tokens, tokenizers, chat templates."""
