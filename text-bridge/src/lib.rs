//! A C interface over the Hugging Face `tokenizers` crate.
//!
//! `include/moewe_text_bridge.h` is the contract; `ffi` implements it and nothing else here is unsafe.
//! - `loaded`: a tokenizer.json, checked and ready to encode and decode
//! - `guarded`: encoding where parts of the text must not become control tokens
//! - `stream`: decoding id by id

pub mod ffi;
pub mod guarded;
pub mod loaded;
pub mod stream;
