"""Keras modules: torsos, residual nets, recurrent cores, heads and distributions."""
