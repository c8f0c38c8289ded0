"""An LSTM that projects its states."""
