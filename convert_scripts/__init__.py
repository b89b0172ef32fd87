"""Weights in, weights out and publishing; installed as `transformers_elmo.convert_scripts`."""
