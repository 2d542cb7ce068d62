//! Nothing of its own: the conversations are in `tests/`.
