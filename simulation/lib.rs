//! The tests are in `seeds/`.
