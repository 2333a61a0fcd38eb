//! A C interface over the Hugging Face `tokenizers` crate.
