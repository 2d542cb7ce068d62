//! Empty. The tests are in `tests/`.
