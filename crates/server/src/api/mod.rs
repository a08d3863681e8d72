//! The HTTP border: dialects decode into one model and encode from it.
