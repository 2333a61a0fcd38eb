//! Decoding id by id, as the library's DecodeStream does it, plus what is left at the end.

use std::sync::Arc;

use tokenizers::step_decode_stream;

use crate::loaded::{Failure, Loaded};

pub struct DecodeStream {
    loaded: Arc<Loaded>,
    skip_special: bool,
    /// The library's state: ids that the next piece depends on, their text, where the new ones start.
    window: Vec<u32>,
    prefix: String,
    prefix_index: usize,
    /// Everything seen and given out, for `finish`.
    all: Vec<u32>,
    given: String,
}

impl DecodeStream {
    pub fn new(loaded: Arc<Loaded>, skip_special: bool) -> Self {
        Self {
            loaded,
            skip_special,
            window: Vec::new(),
            prefix: String::new(),
            prefix_index: 0,
            all: Vec::new(),
            given: String::new(),
        }
    }

    /// The text that `id` completes; None: nothing may be shown yet.
    pub fn push(&mut self, id: u32) -> Option<String> {
        self.all.push(id);
        let step = step_decode_stream(
            &*self.loaded.tokenizer,
            vec![id],
            self.skip_special,
            &mut self.window,
            &mut self.prefix,
            &mut self.prefix_index,
        );
        // The one error is a decoder that changes text it has already shown. The ids stay in the
        // window: text comes with a later id, or from finish().
        let piece = step.ok().flatten()?;
        self.given.push_str(&piece);
        Some(piece)
    }

    /// The rest of decode(all ids). Where the decoder changed its mind about text that was given
    /// out, the rest starts at the first difference.
    pub fn finish(&mut self) -> Result<String, Failure> {
        let full = self.loaded.decode_known(&self.all, self.skip_special)?;
        let same = full
            .char_indices()
            .zip(self.given.chars())
            .find(|((_, a), b)| a != b)
            .map_or(self.given.len().min(full.len()), |((at, _), _)| at);
        let rest = full[same..].to_owned();
        self.given = full;
        Ok(rest)
    }
}
